"""Which names of a function or a loop hold what the model gave, by what they are assigned from."""

import ast
import re

from dynotune.audit.facts.script import Script
from dynotune.audit.place import Place

_CALLED = re.compile(
    r"(?:self\.)?(?:\w*_)?(?:model|net|network|policy|actor|critic|engine|module|student|backbone|encoder|decoder)"
)
_LEAVES = frozenset({"item", "tolist", "numpy", "cpu", "size", "dim", "numel"})
"""Methods whose answer is the host's."""


def of_the_model(script: Script, within: Place) -> frozenset[str]:
    """Names that come from a call of the model in these lines, straight or by arithmetic. Nothing leaves the set again: a
    name that is once a tensor and once a number is left out."""
    found: set[str] = set()
    numbers: set[str] = set()
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.Assign) or not within.line <= node.lineno <= within.end_line:
            continue
        names = {
            one.id
            for target in node.targets
            for one in ast.walk(target)
            if isinstance(one, ast.Name) and not _held(target)
        }
        if _is_of_host(node.value):
            numbers |= names
        elif comes_from(node.value, found):
            found |= names
    return frozenset(found - numbers)


def _held(target: ast.expr) -> bool:
    return isinstance(target, ast.Subscript | ast.Attribute)


def comes_from(node: ast.expr, names: set[str] | frozenset[str]) -> bool:
    """Made of a call of the model, or of one of these names."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one.id in names:
            return True
        if isinstance(one, ast.Call) and _CALLED.fullmatch(ast.unparse(one.func)):
            return True
    return False


def _is_of_host(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(called, ast.Attribute) and called.attr in _LEAVES:
        return True
    if isinstance(called, ast.Name) and called.id in ("float", "int", "len", "str"):
        return True
    return isinstance(node, ast.Subscript) and "shape" in ast.unparse(node.value)
