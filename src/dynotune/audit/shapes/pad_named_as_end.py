"""Padding is given the end token's own text, without its being called so."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.chat_templates import followed
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected, together
from dynotune.audit.place import Place

_ENDS: tuple[tuple[str, str], ...] = (
    (r"^(?:meta-)?llama-3(?:\.\d)?-\d+b$", "<|end_of_text|>"),
    (r"^(?:meta-)?llama-3(?:\.\d)?-\d+b-instruct$", "<|eot_id|>"),
    (r"^qwen-?(?:1\.5|2|2\.5)-[\d.]+b$|^qwen-?3-[\d.]+b-base$", "<|endoftext|>"),
    (r"^qwen-?(?:1\.5|2|2\.5)-[\d.]+b-(?:instruct|chat)$|^qwen-?3-[\d.]+b$", "<|im_end|>"),
    (r"^llama-2-\d+b(?:-chat)?(?:-hf)?$|^mistral-7b-|^tinyllama|^zephyr-7b", "</s>"),
    (r"^gpt2|^distilgpt2|^pythia-|^gpt-neo|^gpt-j|^falcon-|^mpt-|^phi-[12]", "<|endoftext|>"),
    (r"^opt-", "</s>"),
    (r"^gemma-(?:2-|3-)?\d+b$", "<eos>"),
    (r"^smollm2?-[\d.]+[mb]$", "<|endoftext|>"),
    (r"^smollm2-[\d.]+[mb]-instruct$", "<|im_end|>"),
)
"""End tokens by the last part of a model's whole name."""


def pad_named_as_end(script: Script, project: Project) -> Place | None:
    """`tok.pad_token = "<|end_of_text|>"` of a Llama 3, also by a name, where all models of the program end so."""
    files = {one.file for one in connected(script, project)}
    models = {str(job.get("model_name_or_path")) for job in project.jobs if files & set(job.files)}
    ends = {_end_of(one) for one in models}
    if len(ends) != 1 or "" in ends:
        return None
    (end,) = ends
    for one in together(script, project):
        for node, value in _pads(one):
            held = followed(value, one, project)
            found = held[1] if held is not None else None
            if isinstance(found, ast.Constant) and found.value == end:
                return place_of(one, node)
    return None


def _end_of(model: str) -> str:
    last = model.rstrip("/").rpartition("/")[2].lower()
    return next((end for pattern, end in _ENDS if re.search(pattern, last)), "")


def _pads(script: Script) -> Iterator[tuple[ast.AST, ast.expr]]:
    for node in ast.walk(script.tree) if "pad_token" in script.source else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(".pad_token"):
            yield node, node.value
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "pad_token":
                    yield value, value
        elif isinstance(node, ast.keyword) and node.arg == "pad_token":
            yield node.value, node.value
