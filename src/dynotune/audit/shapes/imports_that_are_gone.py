"""A script imports a name that the pinned release of its package no longer has."""

import ast
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Asked, Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.schema.keys import earlier

GONE: tuple[tuple[str, str, str, str], ...] = (
    ("peft", "prepare_model_for_int8_training", "0.10", "Import `prepare_model_for_kbit_training`."),
    ("datasets", "load_metric", "3.0", "Use `evaluate.load` of the package evaluate."),
    ("transformers", "AdamW", "4.50", "Use `torch.optim.AdamW(..., fused=True)`."),
    ("transformers", "TextDataset", "5.0", "Use `datasets.load_dataset('text', ...)` and `map`."),
    ("transformers", "LineByLineTextDataset", "5.0", "Use `datasets.load_dataset('text', ...)` and `map`."),
    (
        "trl",
        "DataCollatorForCompletionOnlyLM",
        "0.20",
        "Use rows of prompts and completions, or `assistant_only_loss`.",
    ),
    ("trl.trainer", "ConstantLengthDataset", "0.20", "Set `packing: true`."),
    ("trl", "setup_chat_format", "0.26", "Use `clone_chat_template`, or a tokenizer with a template."),
)
"""Module, name, the release from which on it is seen no more, and what to do. Each was looked for in `__init__.py` of the
releases before and after: peft 0.8.2, 0.9.0 and 0.10.0; datasets 2.21.0 and 3.0.0; transformers 4.46.3 to 4.50.3, 4.57.1 and
5.0.0; trl 0.13.0 to 0.26.2."""


def imports_that_are_gone(pinned: Sequence[Asked], project: Project) -> Iterator[Said]:
    for module, name, since, instead in GONE:
        package = module.partition(".")[0]
        asked = [one for one in pinned if one.name == package]
        if not asked or any(earlier(one.version, since) for one in asked):
            continue
        for script in project.scripts:
            for node in _imports(script, module, name):
                yield Finding(
                    f"`{name}` is gone from {package} {since} on, and {asked[0].place.file} asks for"
                    f" {package}=={asked[0].version}: the import stops the script.",
                    place=place_of(script, node),
                    evidence=Evidence(Level.TEXT, {package: asked[0].version, "gone since": since}),
                    stake=Stake(AtStake.STOPS),
                    remedy=Remedy(Risk.BEHAVIOURAL, instead, effort=Effort.MINUTES),
                    also=(asked[0].place,),
                )


def _imports(script: Script, module: str, name: str) -> Iterator[ast.AST]:
    """`from module import name`, and `module.name` where the module is imported; not where a failure is caught."""
    if name not in script.source:
        return
    caught = {
        id(part)
        for one in ast.walk(script.tree)
        if isinstance(one, ast.Try)
        for top in one.body
        for part in ast.walk(top)
    }
    for node in ast.walk(script.tree):
        if id(node) in caught:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == module and name in {one.name for one in node.names}:
            yield node
            continue
        owner = node.value if isinstance(node, ast.Attribute) and node.attr == name else None
        if isinstance(owner, ast.Name) and script.imports.get(owner.id) == module:
            yield node
