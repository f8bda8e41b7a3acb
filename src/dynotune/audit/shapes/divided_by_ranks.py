"""What `backward` is called on is divided by the number of ranks, followed through the names that its factors have."""

import ast
import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script

_RANKS = re.compile(
    r"(?:[\w.]+\.)?(?:world_?size|num_processes|n_?ranks|get_world_size\(\))|int\(os\.environ\[['\"]WORLD_SIZE['\"]\]\)"
    r"|int\(os\.environ\.get\(['\"]WORLD_SIZE['\"], [^()]*\)\)|int\(os\.getenv\(['\"]WORLD_SIZE['\"][^()]*\)\)",
    re.IGNORECASE,
)
_DEEPEST = 4

_At = tuple[int, int]
_Given = Mapping[str, list[tuple[_At, ast.expr]]]


def divided_by_ranks(script: Script) -> Iterator[tuple[ast.AST, str]]:
    """The division, or what hands it over, and what stands for the number of ranks."""
    if "backward" not in script.source:
        return
    top = _given(script.tree)
    for scope in (script.tree, *(node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef))):
        own = {**top, **_given(scope)}
        for node in own_nodes(scope):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
                loss = node.args[0] if node.args else node.func.value
                if (found := _divisor(loss, own, (node.lineno, node.col_offset), 0)) is not None:
                    yield found


def _given(scope: ast.AST) -> dict[str, list[tuple[_At, ast.expr]]]:
    """Values of names by where they get them; `loss /= n` as the division that it is."""
    found: dict[str, list[tuple[_At, ast.expr]]] = {}
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(((node.lineno, node.col_offset), node.value))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            value = ast.copy_location(ast.BinOp(ast.Name(node.target.id), node.op, node.value), node)
            found.setdefault(node.target.id, []).append(((node.lineno, node.col_offset), value))
    return found


def _before(name: str, given: _Given, at: _At) -> tuple[_At, ast.expr] | None:
    """The last value before a place."""
    return max((one for one in given.get(name, ()) if one[0] < at), key=lambda one: one[0], default=None)


def _divisor(node: ast.expr | None, given: _Given, at: _At, depth: int) -> tuple[ast.AST, str] | None:
    """In a product, every factor is looked at; a sum is none."""
    if depth > _DEEPEST or node is None:
        return None
    if isinstance(node, ast.Name):
        held = _before(node.id, given, at)
        return _divisor(held[1], given, held[0], depth + 1) if held is not None else None
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div | ast.Mult):
        return None
    if any(_ranks(factor, given, at, 0) for factor in _factors(node)):
        return None  # multiplied by them as well
    if isinstance(node.op, ast.Div):
        by = next((_ranks(factor, given, at, 0) for factor in _factors(node.right) if _ranks(factor, given, at, 0)), "")
        return (node, by) if by else _divisor(node.left, given, at, depth + 1)
    return _divisor(node.left, given, at, depth + 1) or _divisor(node.right, given, at, depth + 1)


def _factors(node: ast.expr) -> Iterator[ast.expr]:
    """Of a product; of a quotient, those above the line."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from _factors(node.left)
        yield from _factors(node.right)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        yield from _factors(node.left)
    else:
        yield node


def _ranks(node: ast.expr, given: _Given, at: _At, depth: int) -> str:
    """What stands for the number of ranks; empty: it is something else."""
    if _RANKS.fullmatch(text := ast.unparse(node)):
        known = _before(node.id, given, at) if isinstance(node, ast.Name) else None
        return text if known is None or depth > _DEEPEST or _is_number_of_ranks(known[1]) else ""
    if isinstance(node, ast.Name) and depth <= _DEEPEST:
        held = _before(node.id, given, at)
        value = held[1] if held is not None else None
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
            return next((one for part in _factors(value) if (one := _ranks(part, given, at, depth + 1))), "")
        return node.id if value is not None and _RANKS.fullmatch(ast.unparse(value)) else ""
    return ""


def _is_number_of_ranks(value: ast.expr) -> bool:
    return re.search(r"world|WORLD|num_processes|n_?gpus?|ranks", ast.unparse(value)) is not None
