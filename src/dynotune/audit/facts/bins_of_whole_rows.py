"""Whole rows are laid behind each other until a row of the model is full: packing without a cut, by a project's own code."""

import ast
import re
from collections.abc import Iterator

_ADDED = re.compile(r"^(?:not )?[^<>=]*\+[^<>=]* >=? [^<>=]+$|^[^<>=]+ <=? [^<>=]*\+[^<>=]*$")
"""`len(row) + len(ids) > limit`."""

_EMPTY = re.compile(r"^(?:list\(\)|\[\]|\(\[\](?:, (?:\[\]|\d+))*\)|\{(?:'\w+': \[\](?:, )?)+\})$")
_JOINED = re.compile(
    r"chain(?:\.from_iterable)?\(|sum\([^\n]*, \[\]\)|np\.concatenate\(|torch\.cat\(|hstack\("
    r"|for (\w+) in \w+ for \w+ in \1\[['\"]\w+['\"]\]"
)
_OF_IDS = re.compile(r"input_ids|token_ids|\bids\b|tokens")


def filled_by_whole_rows(room: ast.FunctionDef) -> ast.AST | None:
    """The statement that puts one row behind another; None: the function fills no row so."""
    text = ast.unparse(room)
    if len(text) > 6_000 or not _OF_IDS.search(text):
        return None
    for loop in (one for one in ast.walk(room) if isinstance(one, ast.For)):
        for test in (one for one in ast.walk(loop) if isinstance(one, ast.If)):
            if not _ADDED.match(_outermost(test.test)):
                continue
            names = {name for part in ast.walk(test) for name in _emptied(part)}
            for part in ast.walk(loop):
                if (grown := _grown(part)) is not None and grown[0] in names and (grown[1] or _JOINED.search(text)):
                    return part
    return None


def _outermost(test: ast.expr) -> str:
    """`cur and len(cur) + n > limit` asks for the last."""
    if isinstance(test, ast.BoolOp):
        test = next((one for one in test.values if isinstance(one, ast.Compare) and "+" in ast.unparse(one)), test)
    return ast.unparse(test)


def _emptied(node: ast.AST) -> set[str]:
    """Names that are given nothing, or cleared."""
    if isinstance(node, ast.Assign) and _EMPTY.match(ast.unparse(node.value)):
        target = node.targets[0]
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        return {_root(one) for one in parts}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "clear":
        return {_root(node.func.value)}
    return set()


def _grown(node: ast.AST) -> tuple[str, bool] | None:
    """What grows, and whether by the ids themselves (else by a row as a whole)."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and not isinstance(node.value, ast.Constant):
        return _root(node.target), bool(_OF_IDS.search(ast.unparse(node.value)))
    for target, value in _pairs(node) if isinstance(node, ast.Assign) else ():
        adds = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)
        if adds and isinstance(value, ast.BinOp) and ast.unparse(value.left) == ast.unparse(target):
            return _root(target), _OF_IDS.search(f"{ast.unparse(value.right)} {ast.unparse(target)}") is not None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if node.func.attr == "extend":
            return _root(node.func.value), bool(_OF_IDS.search(ast.unparse(node.args[0])))
        if node.func.attr == "append":
            return _root(node.func.value), False
    return None


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with what it gets: `ids, at = ids + row, at + [0]`."""
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        yield from zip(target.elts, value.elts, strict=False)
    else:
        yield target, value


def _root(node: ast.expr) -> str:
    """`row` of `row["input_ids"]`, `self.row` of itself."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return ast.unparse(node)
