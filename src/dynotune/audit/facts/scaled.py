"""What a loss is divided and multiplied by on its way, followed through names, helpers and files."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script

_DEEPEST = 6
DIVIDING = frozenset({"div", "div_", "true_divide", "divide"})
_MULTIPLYING = frozenset({"mul", "mul_", "multiply"})
_KEEPING = frozenset({"float", "to", "mean", "sum", "scale", "view", "squeeze", "clone", "contiguous", "cuda", "half"})
"""Methods behind which a loss is still the same, and a scaler's, which takes its factor out again."""


@dataclass(frozen=True, slots=True)
class Factor:
    script: Script
    node: ast.expr
    """The division or product."""

    by: ast.expr
    """As the function says it that the loss comes from; its own parameters replaced by what they are given."""

    divides: bool
    room: ast.AST
    """The function, or the file, that it stands in."""


def factors_of(value: ast.expr, room: ast.AST, script: Script, near: Sequence[Script]) -> list[Factor]:
    """Of an expression in a function (or file): what it is divided and multiplied by, last first. Helpers are followed
    where a name has one definition in the files that are near."""
    return list(_of(value, _Room(room, script, {}), near, 0))


@dataclass(frozen=True, slots=True)
class _Room:
    node: ast.AST
    script: Script
    given: Mapping[str, ast.expr]
    """Arguments by parameter."""


def _of(value: ast.expr | None, room: _Room, near: Sequence[Script], depth: int) -> Iterator[Factor]:
    if value is None or depth > _DEEPEST:
        return
    if isinstance(value, ast.IfExp):
        # `(loss, outputs) if return_outputs else loss`
        yield from _of(value.orelse if isinstance(value.body, ast.Tuple) else value.body, room, near, depth + 1)
    elif isinstance(value, ast.Tuple) and value.elts:
        yield from _of(value.elts[0], room, near, depth + 1)
    elif isinstance(value, ast.Dict):
        held = {
            key.value: one for key, one in zip(value.keys, value.values, strict=True) if isinstance(key, ast.Constant)
        }
        yield from _of(held.get("loss"), room, near, depth + 1)
    elif isinstance(value, ast.Name):
        last = _last(value, room.node)
        if isinstance(last, ast.AugAssign):
            if isinstance(last.op, ast.Div | ast.Mult):
                node = ast.copy_location(ast.BinOp(value, last.op, last.value), last)
                yield _factor(node, last.value, isinstance(last.op, ast.Div), room)
            before = ast.copy_location(ast.Name(value.id, ast.Load()), last)
            yield from _of(before, room, near, depth + 1)
        elif last is not None:
            yield from _of(last, room, near, depth + 1)
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div | ast.Mult):
        divides = isinstance(value.op, ast.Div)
        yield from (_factor(value, one, divides, room) for one in _product(value.right))
        if not divides:
            yield from (_factor(value, one, False, room) for one in _product(value.left))
            yield from _of(value.right, room, near, depth + 1)
        yield from _of(value.left, room, near, depth + 1)
    elif isinstance(value, ast.Call):
        yield from _of_call(value, room, near, depth)


def _of_call(call: ast.Call, room: _Room, near: Sequence[Script], depth: int) -> Iterator[Factor]:
    func = call.func
    if isinstance(func, ast.Attribute):
        if func.attr in DIVIDING | _MULTIPLYING and call.args:
            yield _factor(call, call.args[-1], func.attr in DIVIDING, room)
            yield from _of(call.args[0] if len(call.args) > 1 else func.value, room, near, depth + 1)
            return
        if func.attr in _KEEPING and not (isinstance(func.value, ast.Name) and func.value.id in ("torch", "F")):
            yield from _of(call.args[0] if func.attr == "scale" and call.args else func.value, room, near, depth + 1)
            return
    found = _definition(call, room, near)
    if found is None:
        return
    script, function = found
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] == ["self"] and isinstance(func, ast.Attribute):
        names = names[1:]
    given = dict(zip(names, call.args, strict=False)) | {one.arg: one.value for one in call.keywords if one.arg}
    inner = _Room(function, script, {name: _filled(one, room) for name, one in given.items()})
    returned = [one for one in own_nodes(function) if isinstance(one, ast.Return) and one.value is not None]
    if returned:
        last = max(returned, key=lambda one: one.lineno)
        yield from _of(last.value, inner, near, depth + 1)


def _factor(node: ast.expr, by: ast.expr, divides: bool, room: _Room) -> Factor:
    if isinstance(by, ast.BinOp) and isinstance(by.op, ast.Div) and ast.unparse(by.left) in ("1", "1.0"):
        by, divides = by.right, not divides  # `loss * (1 / n)`
    return Factor(room.script, node, _filled(by, room), divides, room.node)


def _filled(node: ast.expr, room: _Room) -> ast.expr:
    return room.given.get(node.id, node) if isinstance(node, ast.Name) else node


def _product(node: ast.expr) -> list[ast.expr]:
    """Factors of a product, in brackets or not; `max(n, 1)` and `int(n)` are n."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_product(node.left), *_product(node.right)]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("max", "int", "float") and node.args:
        return _product(next((one for one in node.args if not isinstance(one, ast.Constant)), node.args[0]))
    return [node]


def _last(name: ast.Name, room: ast.AST) -> ast.expr | ast.AugAssign | None:
    """What a name was given last before the place where it stands: also as the first of several."""
    before = [
        (at, value)
        for at, end, value in _given(room).get(name.id, ())
        if at < name.lineno or (at == name.lineno and end <= name.col_offset)
    ]
    return max(before, key=lambda one: one[0])[1] if before else None


@lru_cache(maxsize=256)
def _given(room: ast.AST) -> dict[str, list[tuple[int, int, ast.expr | ast.AugAssign]]]:
    """By name, what it is given: the line, where that ends in it, and the value. Once for a room, which a file's length of
    names asks for."""
    found: dict[str, list[tuple[int, int, ast.expr | ast.AugAssign]]] = {}
    for node in own_nodes(room):
        given: list[tuple[ast.expr, ast.expr | ast.AugAssign]] = []
        if isinstance(node, ast.AugAssign):
            given = [(node.target, node)]
        elif isinstance(node, ast.Assign):
            firsts = [one.elts[0] if isinstance(one, ast.Tuple) and one.elts else one for one in node.targets]
            given = [(one, node.value) for one in firsts]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            given = [(node.target, node.value)]
        for target, value in given:
            if isinstance(target, ast.Name):
                found.setdefault(target.id, []).append(
                    (getattr(node, "lineno", 0), getattr(node, "end_col_offset", 0), value)
                )
    return found


def _definition(call: ast.Call, room: _Room, near: Sequence[Script]) -> tuple[Script, ast.FunctionDef] | None:
    """The only function of that name; a method only where it is called on `self`, in the class that it is called in."""
    func = call.func
    if isinstance(func, ast.Attribute):
        if isinstance(func.value, ast.Name) and func.value.id == "self":
            return _method(func.attr, room)
        dotted = isinstance(func.value, ast.Name) and func.value.id in room.script.imports
        name = func.attr if dotted else ""
    else:
        name = func.id if isinstance(func, ast.Name) else ""
    # A name that is imported under another is looked for by the one that it has there.
    name = room.script.imports.get(name, name).rpartition(".")[2] if name else ""
    found = [
        (script, node)
        for script in _once((room.script, *near))
        if name and f"def {name}(" in script.source
        for node in script.tree.body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return found[0] if len(found) == 1 else None


def _once(scripts: Sequence[Script]) -> list[Script]:
    return list({one.file: one for one in scripts}.values())


def _method(name: str, room: _Room) -> tuple[Script, ast.FunctionDef] | None:
    for owner in ast.walk(room.script.tree):
        if isinstance(owner, ast.ClassDef) and room.node in owner.body:
            for one in owner.body:
                if isinstance(one, ast.FunctionDef) and one.name == name:
                    return room.script, one
    return None
