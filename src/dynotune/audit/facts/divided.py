"""Where a loop divides its loss by the accumulation before it goes backward."""

import ast
import re
from collections.abc import Iterator, Sequence, Set

from dynotune.audit.facts.names_of_settings import ACCUMULATION
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.scaled import DIVIDING
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import Loop, place_of
from dynotune.audit.place import Place

_NO_NUMBER = re.compile(r"token|accumulated|accuracy|\bsum\(", re.IGNORECASE)
"""What divides a sum by as many things as were added up: no number of micro-batches."""


def divided(
    script: Script, loop: Loop, near: Sequence[Script], every: int | None, called: Set[str] = frozenset()
) -> Place | None:
    """The division of what `backward` is given, in the loop or in a function that gives the loss: by what is called the
    accumulation, by its number (every), or by the expressions that it is told with (called)."""
    nodes = [
        one for one in ast.walk(script.tree) if loop.place.line <= getattr(one, "lineno", 0) <= loop.place.end_line
    ]
    steps = [one for one in nodes if isinstance(one, ast.Call) and _goes_backward(one) and one.args]
    last = max((one.lineno for one in steps), default=0)  # what is divided behind it is shown
    handed = {one.args[0].id for one in steps if isinstance(one.args[0], ast.Name)}
    for node in sorted(nodes, key=lambda one: getattr(one, "lineno", 0)):
        for value in _values(node, handed, last):
            by = _divisor(value)
            if by is not None and _is_accumulation(by, every, called):
                return place_of(script, node)
            for other, given in _given_by(value, (script, *near)):
                by = _divisor(given)
                if by is not None and _is_accumulation(by, every, frozenset()):
                    return place_of(other, given)
    return None


def _goes_backward(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "backward"


def _values(node: ast.AST, handed: Set[str], last: int) -> Iterator[ast.expr]:
    """What a statement makes the loss of, or a call is given as it."""
    if isinstance(node, ast.Call) and _goes_backward(node) and node.args:
        yield node.args[0]
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in handed:
        if node.lineno <= last and isinstance(node.op, ast.Div):
            yield ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
    elif isinstance(node, ast.Assign):
        names = {one.id for one in node.targets if isinstance(one, ast.Name)}
        if node.lineno <= last and handed & names:
            yield node.value


def _divisor(value: ast.expr) -> ast.expr | None:
    """`n` of `loss / n`, `loss.div(n)`, `torch.div(loss, n)` and `loss * (1 / n)`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
        return value.right
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        part = next((one for one in (value.left, value.right) if isinstance(one, ast.BinOp)), None)
        one_over = part is not None and isinstance(part.op, ast.Div) and ast.unparse(part.left) in ("1", "1.0")
        return part.right if part is not None and one_over else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in DIVIDING:
        return value.args[-1] if value.args else None
    return None


def _is_accumulation(by: ast.expr, every: int | None, called: Set[str]) -> bool:
    text = ast.unparse(by)
    if isinstance(by, ast.Constant):
        return every is not None and by.value == every
    return text in called or (bool(ACCUMULATION.search(text)) and not _NO_NUMBER.search(text))


def _given_by(value: ast.expr, scripts: Sequence[Script]) -> Iterator[tuple[Script, ast.expr]]:
    """What a function of the program returns: `loss = step_loss(model, batch, args)`."""
    name = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
    for script in scripts if name else ():
        if f"def {name}(" not in script.source:
            continue
        for node in script.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                for one in own_nodes(node):
                    if isinstance(one, ast.Return) and one.value is not None:
                        yield script, one.value
