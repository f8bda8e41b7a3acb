"""Expressions that take a part of rows, and calls that train on all of them."""

import ast
import re

OF_TESTS = re.compile(
    r"(?:^|_)(?:val|valid|validation|eval|evaluation|test|dev|heldout|held_out)(?:$|_)", re.IGNORECASE
)
"""Names of rows that are held out."""

FEW = 20
"""Rows below which a part is a look at the data, or prompts to be answered, not an evaluation."""


def is_a_look(node: ast.expr) -> bool:
    """`rows[:5]`, `rows.select(range(3))`: how many is written out, and few."""
    whole = [
        one.value for one in ast.walk(_unshuffled(node)) if isinstance(one, ast.Constant) and type(one.value) is int
    ]
    return bool(whole) and max(whole) < FEW


def drawn_from(node: ast.expr) -> str:
    """`rows` of `rows[:100]`, `random.sample(rows, 100)`, `rows.shuffle(seed=0).select(range(100))`; empty: of no name."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        first = name in ("random.sample", "rng.sample") or name.rpartition(".")[2] == "Subset"
        if first and node.args and isinstance(node.args[0], ast.Name):
            return node.args[0].id
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("select", "sample", "take", "head"):
            rows = _unshuffled(node.func.value)
            return rows.id if isinstance(rows, ast.Name) and rows.id != "random" else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and isinstance(node.value, ast.Name):
        return node.value.id
    return ""


def _unshuffled(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "shuffle":
        node = node.func.value
    return node


def trains_on(call: ast.Call, whole: str) -> bool:
    """`DataLoader(rows, shuffle=True)`, `Trainer(train_dataset=rows)`."""
    options = {one.arg: ast.unparse(one.value) for one in call.keywords if one.arg}
    if options.get("train_dataset") == whole:
        return True
    loader = ast.unparse(call.func).rpartition(".")[2] == "DataLoader" and bool(call.args)
    return loader and ast.unparse(call.args[0]) == whole and options.get("shuffle") == "True"
