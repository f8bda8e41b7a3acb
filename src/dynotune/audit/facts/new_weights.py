"""Calls that make weights by chance: classes of a program's own with layers in them, models from a configuration, heads."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.script import Call, Script

_LAYER = re.compile(
    r"\bnn\.(?:Linear|Bilinear|Embedding|Conv\w+|LSTM|GRU|RNN|Transformer\w*|MultiheadAttention)\("
    r"|\bnn\.Parameter\(torch\.(?:rand\w*|empty)\("
)
_OF_TORCH = re.compile(
    r"^torch\.nn\.(?:Linear|Bilinear|Embedding|Conv\w+|LSTM|GRU|RNN|Transformer\w*|MultiheadAttention)$"
)
_FROM_A_CONFIGURATION = re.compile(r"^transformers\.[\w.]*(?:\.from_config|(?:ForCausalLM|LMHeadModel|ForMaskedLM))$")
_WITH_A_HEAD = re.compile(r"^transformers\.[\w.]*For(?:Sequence|Token)Classification\.from_pretrained$")
_NOT_TRAINED = re.compile(r"eval|test_|infer|predict|generat|demo|plot|bench|profile|export|convert", re.IGNORECASE)


def made_by_chance(scripts: Sequence[Script]) -> Iterator[Call]:
    """In the order of the scripts. A class counts where its constructor makes a layer, or another such class."""
    modules = _constructors(scripts)
    fresh = _with_layers(modules)
    for script in scripts:
        if _NOT_TRAINED.search(script.file):
            continue
        for call in script.calls:
            if any(
                _NOT_TRAINED.search(one.name) or (one.kind == "class" and one.name in modules) for one in call.around
            ):
                continue
            last = call.name.rpartition(".")[2]
            if (
                last in fresh
                or _OF_TORCH.match(call.name)
                or _FROM_A_CONFIGURATION.match(call.name)
                or _WITH_A_HEAD.match(call.name)
            ):
                yield call


def _constructors(scripts: Sequence[Script]) -> Mapping[str, str]:
    """By classes of layers: the source of what makes one."""
    return {
        node.name: ast.unparse(start)
        for one in scripts
        for node in ast.walk(one.tree)
        if isinstance(node, ast.ClassDef) and re.search(r"Module\b", " ".join(map(ast.unparse, node.bases)))
        for start in node.body
        if isinstance(start, ast.FunctionDef) and start.name == "__init__"
    }


def _with_layers(modules: Mapping[str, str]) -> frozenset[str]:
    found = {name for name, text in modules.items() if _LAYER.search(text)}
    for _ in range(3):  # a model of blocks of layers
        holds = re.compile(rf"\b(?:{'|'.join(map(re.escape, found))})\(") if found else None
        found |= {name for name, text in modules.items() if holds is not None and holds.search(text)}
    return frozenset(found)
