"""Rows that are held out and trained on all the same: joined with the training rows, or divided off from rows that are
trained on whole."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.place import Place
from dynotune.audit.shapes.drawn_from import OF_TESTS, trains_on

_JOINS = re.compile(r"(?:^|\.)(?:concatenate_datasets|interleave_datasets|ConcatDataset|concat|chain|vstack)$")
_DIVIDES = re.compile(r"(?:^|\.)(?:random_split|train_test_split)$")
_KEEPS_ROWS = frozenset({"map", "shuffle", "with_format", "rename_column", "rename_columns", "remove_columns", "cast"})
_MANY = 400
"""Names of a scope from which on it is no program of a person's."""


@dataclass(frozen=True, slots=True)
class Kept:
    why: str
    place: Place
    trained: Place


def held_out_rows_kept(script: Script, project: Project) -> Iterator[Kept]:
    source = script.source
    if not re.search(r"val|eval|test|dev|held", source) or not re.search(
        r"random_split|train_test_split|concat|interleave_datasets|chain\(|vstack| \+ ", source, re.IGNORECASE
    ):
        return
    for scope in (script.tree, *(node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef))):
        room = _Room(scope)
        if len(room.given) <= _MANY:
            yield from _joined(room, script)
            yield from _divided_off(room, script)


class _Room:
    def __init__(self, scope: ast.AST) -> None:
        self.nodes = list(own_nodes(scope))
        self.given: dict[str, list[ast.expr]] = {}
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        for node in self.nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.given.setdefault(node.targets[0].id, []).append(node.value)

    def plain(self, node: ast.expr, deep: int = 6) -> str:
        """What rows an expression has, by the first name of them: `raw['test']` of a name that gets
        `raw["test"].map(encode)`."""
        node = _of_the_same_rows(node)
        if isinstance(node, ast.Name) and deep:
            values = self.given.get(node.id, [])
            if len(values) == 1 and isinstance(_of_the_same_rows(values[0]), ast.Name | ast.Subscript):
                return self.plain(values[0], deep - 1)
        return ast.unparse(node)

    def evaluated(self) -> Iterator[ast.expr]:
        """Rows that something evaluates: a trainer's argument, a loader's rows, what is returned behind training rows."""
        for call in self.calls:
            yield from (word.value for word in call.keywords if word.arg in ("eval_dataset", "val_dataset"))
        for node in self.nodes:
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
                yield from node.value.elts[1:]
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args:
                loads = ast.unparse(node.value.func).rpartition(".")[2] == "DataLoader"
                if loads and OF_TESTS.search(ast.unparse(node.targets[0]).replace("_loader", "_")):
                    yield node.value.args[0]

    def trained(self, whole: str) -> ast.AST | None:
        """Where all of the rows of this name are trained on."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and any(
                trains_on(node, name) for name in {whole, *self._called(whole)} if name in ast.unparse(node)
            ):
                return node
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and node.value.elts:
                first = node.value.elts[0]
                if isinstance(first, ast.Name) and self.plain(first) == whole:
                    return node
        return None

    def _called(self, whole: str) -> list[str]:
        return [name for name in self.given if self.plain(ast.Name(name)) == whole]


def _of_the_same_rows(node: ast.expr) -> ast.expr:
    """Without methods that change no row's place in one of two parts."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPS_ROWS:
        node = node.func.value
    return node


def _joined(room: _Room, script: Script) -> Iterator[Kept]:
    """`train = concatenate_datasets([raw["train"], raw["test"]])`, and `raw["test"]` evaluates."""
    for name, values in room.given.items():
        first = _of_the_same_rows(values[0])
        parts = _parts(first)
        if len(parts) < 2 or OF_TESTS.search(name) or not all(_is_of(name, value) for value in values[1:]):
            continue
        texts = {room.plain(one): ast.unparse(one) for one in parts}
        for part in room.evaluated():
            if room.plain(part) in texts and (used := room.trained(name)) is not None:
                what = texts[room.plain(part)]
                yield Kept(
                    f"`{ast.unparse(part)[:60]}` evaluates, and `{name}`, which is trained on, has the"
                    f" rows of `{what[:60]}`",
                    place_of(script, first),
                    place_of(script, used),
                )
                return


def _parts(node: ast.expr) -> Sequence[ast.expr]:
    """Of rows that are joined: by a function, or by `+`."""
    if isinstance(node, ast.Call) and _JOINS.search(ast.unparse(node.func)) and node.args:
        first = node.args[0]
        return first.elts if isinstance(first, ast.List | ast.Tuple) else node.args
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left = _parts(node.left) or (node.left,)
        return (*left, node.right)
    return ()


def _is_of(name: str, value: ast.expr) -> bool:
    """Made of the same rows: `rows = rows.shuffle(seed=0)`; a filter may take out what is held out."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in {*_KEEPS_ROWS, "select", "take"}:
            return False
        value = value.func.value
    return isinstance(value, ast.Name) and value.id == name


def _divided_off(room: _Room, script: Script) -> Iterator[Kept]:
    """`_, val = random_split(rows, [0.9, 0.1])` or `parts = rows.train_test_split(0.1)`, and `rows` is trained on."""
    evaluated = {text for one in room.evaluated() for text in (room.plain(one), ast.unparse(one))}
    for node in room.nodes:
        if not isinstance(node, ast.Assign):
            continue
        whole, parts = _division(node, room.given)
        held = next((one for one in parts if one in evaluated), None)
        if not whole or held is None or any(value.lineno > node.lineno for value in room.given.get(whole, ())):
            continue
        used = room.trained(whole)
        if used is not None and getattr(used, "lineno", 0) > node.lineno:
            yield Kept(
                f"`{held}` is divided off from `{whole}`, and all of `{whole}` is trained on",
                place_of(script, used),
                place_of(script, node),
            )
            return


def _division(node: ast.Assign, given: Mapping[str, Sequence[ast.expr]]) -> tuple[str, Sequence[str]]:
    """The name of what is divided, and what the parts that are held out are called."""
    call, target = _of_the_same_rows(node.value), node.targets[0]
    one_part: object = None
    match call:
        case (
            ast.Subscript(slice=ast.Constant(value=part))
            | ast.Call(func=ast.Attribute(attr="pop"), args=[ast.Constant(value=part)])
        ):
            one_part = part
            divided = call.func if isinstance(call, ast.Call) else call
            assert isinstance(divided, ast.Attribute | ast.Subscript)
            call = divided.value
    if not isinstance(call, ast.Call) or not _DIVIDES.search(ast.unparse(call.func)):
        return "", ()
    if one_part is not None and one_part not in _HELD_OUT:
        return "", ()  # what is trained on, or a number of things
    rows = call.func.value if isinstance(call.func, ast.Attribute) else None
    by_method = isinstance(rows, ast.Name | ast.Call) and call.func is not None and ast.unparse(rows) not in _MODULES
    whole = _of_the_same_rows(rows) if by_method and rows is not None else call.args[0] if call.args else None
    if not isinstance(whole, ast.Name):
        return "", ()
    if isinstance(target, ast.Tuple):
        return whole.id, [ast.unparse(one) for one in target.elts[1:]]
    name = ast.unparse(target)
    if one_part is not None:
        return (whole.id, [name]) if len(given.get(name, ())) == 1 else ("", ())
    return ("", ()) if name == whole.id else (whole.id, [f"{name}['test']"])


_HELD_OUT = frozenset({"test", 1})
"""By which the smaller part is taken out of a division: `train_test_split(0.1)["test"]`, `random_split(...)[1]`."""

_MODULES = frozenset({"torch.utils.data", "data", "model_selection", "sklearn.model_selection", "utils.data"})
