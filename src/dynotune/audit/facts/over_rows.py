"""Which lines of a script run for row after row: in loops, comprehensions, and functions that these call or `map` does."""

import ast
import re

from dynotune.audit.facts.script import Script

_ROUNDS = ast.For | ast.While | ast.AsyncFor | ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp
FEW = 16
"""What is written down in a literal of fewer is a check, not a data set."""

_MAPPED = re.compile(r"(?:\.map|\.apply|\bmap|\.progress_apply)$")


def lines_over_rows(script: Script) -> set[int]:
    """Line numbers, of functions those that are called so by their name."""
    functions = {node.name: node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef)}
    held: set[int] = set()
    called: list[str] = []
    for node in ast.walk(script.tree):
        if isinstance(node, _ROUNDS) and not _is_over_a_few(node):
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


def _is_over_a_few(node: ast.AST) -> bool:
    """`for text in ["one", "two"]:`."""
    rounds = [one.iter for one in getattr(node, "generators", ())] or [getattr(node, "iter", None)]
    return all(
        isinstance(one, ast.List | ast.Tuple | ast.Set)
        and len(one.elts) < FEW
        and not any(isinstance(held, ast.Starred) for held in one.elts)
        for one in rounds
    )


def _lines(node: ast.expr | ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _calls(node: ast.AST) -> list[str]:
    return [one.func.id for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)]
