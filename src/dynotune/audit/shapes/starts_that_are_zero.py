"""Searches for an answer's start that hand back 0 where they find none, to callers that mask up to it."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.shapes.masked_where_found import masked_before

_NOT_FOUND = re.compile(r"== *-1|< *0|is None|\bnot in\b|^not \w+$")
_FOUND = re.compile(r"!= *-1|>= *0|> *-1|is not None")
_SEARCHES = re.compile(
    r"\b\w*(?:find|index|search|locate)\w*\(|\b\w*(?:ids|tokens)\w*\[[^\]]*:[^\]]*\] *==", re.IGNORECASE
)

_HELD_AGAINST = re.compile(
    r"\w+\[:[^\]]*\](?:\.tolist\(\))? == |== \w+\[:|torch\.equal\(|\.startswith\("
    r"|^\w*[a-z]\w* in \w*(?:text|full|row|rendered)\w*$"
)
"""A piece of a row is held against the prompt, or a text is asked for a mark."""


def zero_where_not_found(function: ast.FunctionDef) -> ast.AST | None:
    """What gives 0 for a row without an answer: `return 0` behind the loop that looks for it, in the branch or the handler
    for it, as a default of `next`, or as the value that a name has before the loop."""
    text = ast.unparse(function)
    if not (_SEARCHES.search(text) or _HELD_AGAINST.search(text)) or any(
        isinstance(node, ast.Raise) for node in ast.walk(function)
    ):
        return None
    last = function.body[-1]
    loops = [node for node in function.body if isinstance(node, ast.For | ast.While)]
    gives = [one for loop in loops for one in ast.walk(loop) if isinstance(one, ast.Return)]
    if gives and isinstance(last, ast.Return) and _is_zero(last.value):
        return last
    if loops and not gives and isinstance(last, ast.Return) and isinstance(last.value, ast.Name):
        return _stays_zero(function, last.value.id, loops)
    return _behind_a_branch(function) or _in_a_branch(function)


def _behind_a_branch(function: ast.FunctionDef) -> ast.AST | None:
    """`if text.startswith(prompt): return len(prompt)`, and `return 0` behind it; or both in one expression."""
    *_, before, last = [None, *function.body]
    if isinstance(last, ast.Return) and isinstance(before, ast.If) and not before.orelse and _is_zero(last.value):
        gives = before.body[-1]
        place = isinstance(gives, ast.Return) and gives.value is not None and not _is_zero(gives.value)
        return last if place and _HELD_AGAINST.search(ast.unparse(before.test)) else None
    if isinstance(last, ast.Return) and isinstance(last.value, ast.IfExp) and _is_zero(last.value.orelse):
        return last if _HELD_AGAINST.search(ast.unparse(last.value.test)) else None
    return None


def _stays_zero(function: ast.FunctionDef, name: str, loops: Sequence[ast.stmt]) -> ast.AST | None:
    """`start = 0`, and a loop that sets it under a condition alone."""
    before = [one for one in function.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == name]
    under = [one for loop in loops for one in ast.walk(loop) if isinstance(one, ast.If)]
    within = [one for branch in under for one in ast.walk(branch) if isinstance(one, ast.Assign)]
    found = any(ast.unparse(one.targets[0]) == name for one in within)
    return before[0] if len(before) == 1 and _is_zero(before[0].value) and found else None


def _in_a_branch(function: ast.FunctionDef) -> ast.AST | None:
    options = {one.arg for one in function.args.args}
    for node in ast.walk(function):
        if isinstance(node, ast.ExceptHandler | ast.If):
            test = ast.unparse(node.test) if isinstance(node, ast.If) else ""
            missing = isinstance(node, ast.ExceptHandler) or _NOT_FOUND.search(test)
            last = node.body[-1]
            own = missing and test.partition(" ")[0] not in options
            if own and isinstance(last, ast.Return) and _is_zero(last.value):
                return last
        if isinstance(node, ast.Return) and isinstance(node.value, ast.IfExp):
            test = ast.unparse(node.value.test)
            zero = node.value.body if _NOT_FOUND.search(test) else node.value.orelse if _FOUND.search(test) else None
            if zero is not None and _is_zero(zero) and test.partition(" ")[0] not in options:
                return node
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            call = node.value
            if ast.unparse(call.func) == "next" and len(call.args) == 2 and _is_zero(call.args[1]):
                return node
    return None


def _is_zero(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0 and node.value is not False


def masked_up_to(function: ast.FunctionDef) -> Iterator[tuple[str, ast.Assign]]:
    """Names of functions whose outcome is where this one masks to, unasked: `start = find(...)`, `[-100] * start`."""
    text = ast.unparse(function)
    if not re.search(r"-100|IGNORE", text):
        return
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name | ast.Attribute):
            name = node.targets[0].id
            masked = masked_before(name)
            asked = rf"\b(if|while|assert)\b[^\n]*\b{name}\b|\b{name}\b (?:if|or)\b|\bif {name}\b"
            if re.search(masked, text) and not re.search(asked, text):
                yield ast.unparse(node.value.func).rpartition(".")[2], node
