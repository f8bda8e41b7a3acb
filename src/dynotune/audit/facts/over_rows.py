"""Which lines of a script run for row after row: in loops, comprehensions, and functions that these call or `map` does."""

import ast
import re

from dynotune.audit.facts.script import Script

_ROUNDS = ast.For | ast.While | ast.AsyncFor | ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp
_MAPPED = re.compile(r"(?:\.map|\.apply|\bmap|\.progress_apply)$")


def lines_over_rows(script: Script) -> set[int]:
    """Line numbers, of functions those that are called so by their name."""
    functions = {node.name: node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef)}
    held: set[int] = set()
    called: list[str] = []
    for node in ast.walk(script.tree):
        if isinstance(node, _ROUNDS):
            held |= _lines(node)
            called += _calls(node)
        elif isinstance(node, ast.Call) and _MAPPED.search(ast.unparse(node.func)):
            called += [one.id for one in node.args[:2] if isinstance(one, ast.Name)]
    seen: set[str] = set()
    while called:
        name = called.pop()
        if name in functions and name not in seen:
            seen.add(name)
            held |= _lines(functions[name])
            called += _calls(functions[name])
    return held


def _lines(node: ast.expr | ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _calls(node: ast.AST) -> list[str]:
    return [one.func.id for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)]
