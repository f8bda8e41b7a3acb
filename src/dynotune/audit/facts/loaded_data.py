"""What makes the data set that a loader or a trainer gets: classes and functions, by their names, followed through
variables, parameters, attributes and what functions return."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import text_at

_DEEP = 8
_TRANSFORMS = ("set_transform", "with_transform")
_AT_ONCE = frozenset({"list", "tuple", "sorted", "from_generator", "from_list"})
"""What goes through all rows when it is called, and keeps them."""

_BY_A_FUNCTION = frozenset({"map", "filter", "apply"})
"""Methods of rows whose first argument is what is called, and no rows."""


def argument(script: Script, call: Call, *names: str, position: int | None = None) -> ast.expr | None:
    """The expression that a call is given by one of these keywords, or at a position."""
    try:
        node = ast.parse(text_at(script, call.place).strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return _argument(node, names, position) if isinstance(node, ast.Call) else None


def _argument(node: ast.Call, names: Sequence[str], position: int | None) -> ast.expr | None:
    named = next((word.value for word in node.keywords if word.arg in names), None)
    if named is None and position is not None and position < len(node.args):
        given = node.args[position]
        return None if isinstance(given, ast.Starred) else given
    return named


def makers(value: ast.expr | None, script: Script, near: Sequence[Script], room: str = "") -> set[str]:
    """Names of what makes it. room: the function that the expression stands in. near: files that are used with this one."""
    found: set[str] = set()
    if value is not None:
        _Follower(near, found).follow(value, script, room, 0)
    return found


class _Follower:
    def __init__(self, near: Sequence[Script], found: set[str]) -> None:
        self.near, self.found = near, found
        self._seen: set[tuple[str, str, str]] = set()

    def follow(self, value: ast.expr, script: Script, room: str, depth: int) -> None:
        key = (script.file, room, ast.unparse(value)[:200])
        if depth > _DEEP or key in self._seen:
            return
        self._seen.add(key)
        if isinstance(value, ast.Call):
            self._call(value, script, room, depth)
        elif isinstance(value, ast.Name | ast.Attribute):
            self._name(value, script, room, depth)
        else:
            for part in _parts(value):
                self.follow(part, script, room, depth + 1)

    def _call(self, value: ast.Call, script: Script, room: str, depth: int) -> None:
        called = ast.unparse(value.func).rpartition(".")[2]
        if called in _AT_ONCE and "Iterable" not in ast.unparse(value.func):
            return
        self.found.add(called)
        if called in _TRANSFORMS and value.args:
            self.found |= _names_in(value.args[0])
        if isinstance(value.func, ast.Attribute):  # rows.shuffle(), rows.map(...)
            self.follow(value.func.value, script, room, depth + 1)
            if called in _BY_A_FUNCTION:
                return
        for given in value.args[:1]:  # Subset(rows, ...), random_split(rows, ...), Wrapper(rows)
            if isinstance(given, ast.Name | ast.Attribute | ast.Subscript | ast.List | ast.Call):
                self.follow(given, script, room, depth + 1)
        for one in (script, *self.near):
            for function in _index(one.tree).functions.get(called, ()):
                for node in own_nodes(function):
                    if isinstance(node, ast.Return) and node.value is not None:
                        self.follow(node.value, one, called, depth + 1)

    def _name(self, value: ast.Name | ast.Attribute, script: Script, room: str, depth: int) -> None:
        text = ast.unparse(value)
        self.found.add(text.rpartition(".")[2])
        for given, function in _index(script.tree).given.get(text, ()):
            if function in (room, "") or isinstance(value, ast.Attribute):
                self.follow(given, script, function, depth + 1)
        if isinstance(value, ast.Name):
            self._parameter(value.id, script, room, depth)

    def _parameter(self, name: str, script: Script, room: str, depth: int) -> None:
        """What the callers of the function give it, where the name is one of its parameters."""
        for function in _index(script.tree).functions.get(room, ()) if room else ():
            names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
            if name not in names and name not in [one.arg for one in function.args.kwonlyargs]:
                continue
            bound = names[:1] in (["self"], ["cls"])
            position = names.index(name) - bound if name in names else None
            called = _class_of(function, script) if room == "__init__" else room
            for one in (script, *self.near):
                for node, inside in _index(one.tree).calls.get(called, ()) if called else ():
                    given = _argument(node, (name,), position)
                    if given is not None:
                        self.follow(given, one, inside, depth + 1)


def _parts(value: ast.expr) -> Iterator[ast.expr]:
    """Expressions of which this one is one, or a part."""
    if isinstance(value, ast.Subscript | ast.Starred | ast.Await):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from (value.body, value.orelse)
    elif isinstance(value, ast.Dict):
        yield from value.values
    elif isinstance(value, ast.DictComp):
        yield value.value
    elif isinstance(value, ast.ListComp | ast.GeneratorExp) and isinstance(value.elt, ast.Call):
        yield value.elt  # of several data sets; rows that are taken out of one are kept
    elif isinstance(value, ast.List | ast.Tuple):
        yield from value.elts
    elif isinstance(value, ast.BoolOp):
        yield from value.values


def _names_in(value: ast.expr) -> set[str]:
    """A function that is handed over, also by `partial` or a lambda."""
    return {one.id for one in ast.walk(value) if isinstance(one, ast.Name)} | {
        one.attr for one in ast.walk(value) if isinstance(one, ast.Attribute)
    }


@dataclass(frozen=True, slots=True)
class _Index:
    """What a file gives and calls, each with the function that does it; "" outside of any."""

    functions: Mapping[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]
    given: Mapping[str, list[tuple[ast.expr, str]]]
    calls: Mapping[str, list[tuple[ast.Call, str]]]


@lru_cache(maxsize=256)
def _index(tree: ast.Module) -> _Index:
    """By name: kept, since every loader of a project asks for it."""
    functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
    given: dict[str, list[tuple[ast.expr, str]]] = {}
    calls: dict[str, list[tuple[ast.Call, str]]] = {}
    rooms: list[tuple[str, ast.AST]] = [("", tree)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.setdefault(node.name, []).append(node)
            rooms.append((node.name, node))
    for room, held in rooms:
        for one in own_nodes(held):
            if isinstance(one, ast.Assign):
                for target in one.targets:
                    for text, value in _assigned(target, one.value):
                        given.setdefault(text, []).append((value, room))
            elif isinstance(one, ast.AnnAssign) and one.value is not None:
                given.setdefault(ast.unparse(one.target), []).append((one.value, room))
            elif isinstance(one, ast.Call):
                calls.setdefault(ast.unparse(one.func).rpartition(".")[2], []).append((one, room))
                if turned := _turns_rows_of(one):
                    given.setdefault(turned, []).append((one, room))
    return _Index(functions, given, calls)


def _class_of(function: ast.AST, script: Script) -> str:
    return next(
        (node.name for node in ast.walk(script.tree) if isinstance(node, ast.ClassDef) and function in node.body), ""
    )


def _turns_rows_of(call: ast.Call) -> str:
    """The data set whose rows a call of `set_transform` turns from then on."""
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in _TRANSFORMS
    return ast.unparse(call.func.value) if is_method and isinstance(call.func, ast.Attribute) else ""


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Names and attributes that an assignment gives a value, with the value: the whole one, where it is taken apart."""
    if isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else ()
        for number, one in enumerate(target.elts):
            yield ast.unparse(one), parts[number] if parts else value
    else:
        yield ast.unparse(target), value
