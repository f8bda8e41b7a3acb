"""The logits of all positions are made where the last one alone is read."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_TOLD = re.compile(r"logits_to_keep|past_key_values|num_logits_to_keep|Seq2Seq|T5For|Bart|MaskedLM")
"""The model is told to keep few, decodes token by token, or is of another kind."""

_LENGTH = re.compile(r"max_(?:seq_)?len(?:gth)?\w*[\"']?\s*(?:=|:(?:\s*int\s*=)?)\s*(\d+)", re.IGNORECASE)
LONG = 1_024
"""Tokens of a row from which on they are worth a word: 0.3 GB of bfloat16 for each row of a vocabulary of 152,000."""


def last_of_all_logits(script: Script, project: Project) -> Iterator[Said]:
    """`model(**batch).logits[:, -1]`, in a file that loads a causal model and cuts rows far out."""
    text = code(script)
    if "logits" not in text or "CausalLM" not in text or _TOLD.search(text):
        return
    lengths = [int(one) for one in _LENGTH.findall(text)]
    if max(lengths, default=0) < LONG:
        return
    reads = [node for node in ast.walk(script.tree) if isinstance(node, ast.Subscript) and _takes_logits(node)]
    if not reads or not all(_is_last(node.slice) for node in reads):
        return  # other positions are read, too
    every = len(re.findall(r"\.logits\b", text))
    if every != len(reads):
        return
    yield Finding(
        f"`{ast.unparse(reads[0])[:70]}` reads the last position, and the model makes the logits of all of them: rows x"
        f" {max(lengths):,} tokens x vocabulary, the largest thing in memory here.",
        place=place_of(script, reads[0]),
        evidence=Evidence(Level.TEXT, {"read": "the last position", "tokens": max(lengths)}),
        stake=Stake(AtStake.MEMORY, 0.3, None, "arithmetic: 1,024 tokens x 152,000 words x 2 bytes, for each row"),
        remedy=Remedy(
            Risk.SAFE,
            "Pass `logits_to_keep=1` to the model (`num_logits_to_keep` before transformers 4.50), rows padded on the left.",
            effort=Effort.LINE,
            measure="torch.cuda.max_memory_allocated() with and without it",
        ),
    )


def _takes_logits(node: ast.Subscript) -> bool:
    return isinstance(node.value, ast.Attribute) and node.value.attr == "logits"


def _is_last(index: ast.expr) -> bool:
    """`[:, -1]`, `[:, -1, :]`, `[:, -1, ids]`, `[0, -1]`."""
    parts = index.elts if isinstance(index, ast.Tuple) else []
    return len(parts) >= 2 and ast.unparse(parts[1]) in ("-1", "-1:")
