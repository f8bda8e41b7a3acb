"""The text that rows are made to before a trainer gets them, by the code that makes it."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import FUNCTIONS, own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import together
from dynotune.audit.place import Place

_STRINGS = frozenset(
    {
        "format", "format_map", "strip", "lstrip", "rstrip", "join", "replace", "get", "lower", "upper", "title", "split",
        "capitalize", "append", "extend", "items", "keys", "values", "removeprefix", "removesuffix", "startswith",
        "endswith",
    }
)  # fmt: skip
"""Methods of strings, and of what rows and lists of strings are."""

_BUILTINS = frozenset(
    {"str", "len", "zip", "range", "enumerate", "list", "dict", "tuple", "print", "isinstance", "sorted", "bool", "int"}
)
_TOKENIZES = re.compile(r"(?:self\.)?(?:tok|tokenizer)(?:\.encode)?")
_HOLE = re.compile(r"\{[^{}]*\}")

Room = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class RenderedText:
    """What one function of `map`, or a trainer's `formatting_func`, makes of a row."""

    place: Place
    """Of the expression that gives the text."""

    source: str
    """The code that has a part in it: the function, its templates, and the functions that it calls."""

    literals: tuple[str, ...]
    """Strings in it, divided where data comes between."""

    ends_with_data: bool
    """Its last part is a column of the row, nothing behind it."""

    known: bool
    """Nothing has a part in it that was not read."""

    also: tuple[Place, ...] = ()
    """Of templates that it is made by, and of what the functions that it calls give."""

    last: str = ""
    """What stands last, as it is written: the column, with the words in front of it where they belong to one string."""


def rendered_texts(script: Script, project: Project) -> list[RenderedText]:
    """In the script and the files that it works with."""
    near = together(script, project)
    columns = {"text"} | {
        setting.value
        for one in near
        for call in one.calls
        if (setting := call.arguments.get("dataset_text_field")) is not None and isinstance(setting.value, str)
    }
    formats = {found for one in near for found in re.findall(r"\bformatting_func\s*=\s*(\w+)", one.source)}
    return [
        _Reader(one, near, room).read(value)
        for one in near
        for room in ast.walk(one.tree)
        if isinstance(room, Room)
        for value in _given(room, columns, formats)
    ]


def tokenised_texts(script: Script, project: Project) -> list[RenderedText]:
    """What functions of the script and the files that it works with give to a tokenizer."""
    near = together(script, project)
    return [
        _Reader(one, near, room).read(node.args[0])
        for one in near
        for room in ast.walk(one.tree)
        if isinstance(room, Room)
        for node in _own(room)
        if isinstance(node, ast.Call) and _TOKENIZES.fullmatch(ast.unparse(node.func)) and node.args
    ]


def _own(room: Room) -> Iterator[ast.AST]:
    """Without what lambdas in it make, which are rooms of their own."""
    return ast.walk(room.body) if isinstance(room, ast.Lambda) else own_nodes(room, (*FUNCTIONS, ast.Lambda))


def _given(room: Room, columns: set[str], formats: set[str]) -> Iterator[ast.expr]:
    is_format = isinstance(room, ast.FunctionDef) and room.name in formats
    for node in _own(room):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value in columns:
                    yield value
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            key = node.targets[0].slice
            if isinstance(key, ast.Constant) and key.value in columns:
                yield node.value
        elif (
            is_format
            and isinstance(node, ast.Return)
            and node.value is not None
            and not isinstance(node.value, ast.Dict)
        ):
            yield node.value


class _Reader:
    """Follows names of one function through its file and the files around it."""

    def __init__(self, script: Script, near: Sequence[Script], room: Room) -> None:
        self.script, self.near, self.room = script, near, room
        self.sources: list[str] = []
        self.literals: list[str] = []
        self.places: list[Place] = []
        self.last: list[str] = []
        self.known = True
        self._seen: set[int] = set()
        self._around = [
            one
            for one in ast.walk(script.tree)
            if isinstance(one, ast.FunctionDef) and one.lineno < room.lineno <= (one.end_lineno or 0)
        ]
        """Functions that it stands in, whose names it may use."""

    def read(self, value: ast.expr) -> RenderedText:
        self._function(self.room, self.script)
        ends = self._ends_with_data(value, self.room, self.script)
        return RenderedText(
            place_of(self.script, value),
            "\n".join(self.sources),
            tuple(self.literals),
            ends,
            self.known,
            tuple(self.places),
            " ".join(self.last),
        )

    def _function(self, room: Room, script: Script) -> None:
        if id(room) in self._seen:
            return
        self._seen.add(id(room))
        self.sources.append(ast.unparse(room))
        rows = {one.arg for one in (*room.args.args, *room.args.kwonlyargs)}
        body = [room.body] if isinstance(room, ast.Lambda) else room.body
        for top in body:
            for node in ast.walk(top):
                self._node(node, rows, script)

    def _node(self, node: ast.AST, rows: set[str], script: Script) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.literals += _HOLE.split(node.value)
        elif isinstance(node, ast.Call):
            self._call(node, rows, script)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in rows:
            self._value(node.id, script)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in rows:
            self._member(node.value.id, node.attr, script)

    def _call(self, node: ast.Call, rows: set[str], script: Script) -> None:
        if isinstance(node.func, ast.Name):
            found = self._find(node.func.id, script)
            if found is not None:
                if id(found[0]) not in self._seen:
                    self.places += [
                        place_of(found[1], one) for one in own_nodes(found[0]) if isinstance(one, ast.Return)
                    ][:1]
                self._function(*found)
            elif node.func.id not in _BUILTINS and not _TOKENIZES.fullmatch(node.func.id):
                self.known = False
        elif isinstance(node.func, ast.Attribute):
            of_a_row = isinstance(node.func.value, ast.Name) and node.func.value.id in rows
            if _TOKENIZES.fullmatch(ast.unparse(node.func)):
                return
            if node.func.attr not in _STRINGS or (of_a_row and node.func.attr in ("format", "format_map")):
                self.known = False

    def _find(self, name: str, script: Script) -> tuple[ast.FunctionDef, Script] | None:
        """A function by the name that it has in a file, or that the file has imported."""
        for one in (script, *self.near):
            if one is script or name in {dotted.rpartition(".")[2] for dotted in script.imports.values()}:
                for node in one.tree.body:
                    if isinstance(node, ast.FunctionDef) and node.name == name:
                        return node, one
        return None

    def _value(self, name: str, script: Script) -> None:
        """A name of the module, here or where it is imported from."""
        imported = script.imports.get(name, "").rpartition(".")[2]
        for one in (script, *(self.near if imported else ())):
            self._assigned(one.tree.body, name if one is script else imported, one)
        for around in self._around if script is self.script else ():
            self._assigned([one for one in own_nodes(around) if isinstance(one, ast.stmt)], name, script)

    def _member(self, owner: str, name: str, script: Script) -> None:
        """`CFG.template` of a class, `settings.TEMPLATE` of a file."""
        file = script.imports.get(owner, "").rpartition(".")[2]
        for one in (script, *self.near):
            for node in one.tree.body:
                if isinstance(node, ast.ClassDef) and node.name in (owner, file):
                    self._assigned(node.body, name, one)
            if file and one.file.rpartition("/")[2] == f"{file}.py":
                self._assigned(one.tree.body, name, one)

    def _assigned(self, body: Sequence[ast.stmt], name: str, script: Script) -> None:
        for node in body:
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            if not any(isinstance(one, ast.Name) and one.id == name for one in targets) or id(node) in self._seen:
                continue
            self._seen.add(id(node))
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if value is None or not _is_text(value):
                continue  # a tokenizer, a data set
            self.sources.append(ast.unparse(value))
            self.places.append(place_of(script, node))
            for one in ast.walk(value):
                self._node(one, set(), script)

    def _ends_with_data(self, node: ast.expr, room: Room, script: Script, depth: int = 0) -> bool:
        if depth > 8:
            return False
        if isinstance(node, ast.Constant):
            self.last.append(str(node.value)[-60:])
            return isinstance(node.value, str) and node.value.rstrip().endswith("}")
        if isinstance(node, ast.JoinedStr):
            parts = [one for one in node.values if not (isinstance(one, ast.Constant) and not str(one.value).strip())]
            self.last += [
                str(one.value)[-40:] if isinstance(one, ast.Constant) else ast.unparse(one) for one in parts[-2:]
            ]
            return bool(parts) and isinstance(parts[-1], ast.FormattedValue)
        if isinstance(node, ast.BinOp):
            before = node.left.right if isinstance(node.left, ast.BinOp) else node.left
            self.last += [str(before.value)[-40:]] if isinstance(before, ast.Constant) else []
            return self._ends_with_data(node.right, room, script, depth + 1)
        if isinstance(node, ast.ListComp):
            return self._ends_with_data(node.elt, room, script, depth + 1)
        if isinstance(node, ast.Subscript):
            self.last.append(ast.unparse(node))
            return True
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "format_map", "strip", "rstrip"):
                self.last += [ast.unparse(one) for one in node.args[-1:]]
                return self._ends_with_data(node.func.value, room, script, depth + 1)
            found = self._find(node.func.id, script) if isinstance(node.func, ast.Name) else None
            returned = (
                [one.value for one in own_nodes(found[0]) if isinstance(one, ast.Return) and one.value] if found else []
            )
            return bool(found and returned) and all(
                self._ends_with_data(one, found[0], found[1], depth + 1) for one in returned if found
            )
        if isinstance(node, ast.Name):
            appended = [one for one in _calls(room) if _appends(one, node.id)]
            if appended:
                return all(self._ends_with_data(one.args[0], room, script, depth + 1) for one in appended)
            for body in (_statements(room), script.tree.body):
                for one in sorted(body, key=lambda held: held.lineno, reverse=True):
                    targets = one.targets if isinstance(one, ast.Assign) else [getattr(one, "target", None)]
                    named = targets[0] if len(targets) == 1 else None
                    if (
                        isinstance(named, ast.Name)
                        and named.id == node.id
                        and isinstance(one, ast.Assign | ast.AugAssign)
                    ):
                        return self._ends_with_data(one.value, room, script, depth + 1)
        return False


def _statements(room: Room) -> list[ast.stmt]:
    """All of a function, those in its loops too."""
    return [] if isinstance(room, ast.Lambda) else [one for one in own_nodes(room) if isinstance(one, ast.stmt)]


def _calls(room: Room) -> list[ast.Call]:
    return [] if isinstance(room, ast.Lambda) else [one for one in own_nodes(room) if isinstance(one, ast.Call)]


def _appends(call: ast.Call, name: str) -> bool:
    """`texts.append(text)`."""
    func = call.func
    named = isinstance(func, ast.Attribute) and func.attr == "append" and isinstance(func.value, ast.Name)
    return named and isinstance(func, ast.Attribute) and ast.unparse(func.value) == name and len(call.args) == 1


def _is_text(node: ast.expr) -> bool:
    """A string, or what is put together of strings."""
    if isinstance(node, ast.Call):
        is_method = isinstance(node.func, ast.Attribute) and node.func.attr in _STRINGS
        return is_method and isinstance(node.func, ast.Attribute) and _is_text(node.func.value)
    return isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp | ast.Dict | ast.List | ast.Tuple)
