"""Checkpointing that a script switches on by calling its model."""

import ast

from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.model import Said
from dynotune.audit.read.python.value import Value


def checkpointing_enabled(evaluator: Evaluator) -> list[Said]:
    """`model.gradient_checkpointing_enable()`, where it runs for sure: under no condition, or one that holds."""
    found: list[Said] = []
    for site in evaluator.module.sites:
        func = site.node.func
        if not isinstance(func, ast.Attribute) or func.attr != "gradient_checkpointing_enable":
            continue
        if evaluator.fresh().runs(site.branches, site.scope) is True:
            place = evaluator.module.place(site.node)
            found.append(Said("gradient_checkpointing", func.attr, Value(True), place))
    return found
