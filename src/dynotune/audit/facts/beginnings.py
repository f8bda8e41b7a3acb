"""Whether a text begins with the beginning token: by a chat template, or by hand, however the text is put together."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script

MARKS = ("<|begin_of_text|>", "<s>", "<bos>")
Room = ast.AST
Function = ast.FunctionDef | ast.AsyncFunctionDef

_KEEPS = frozenset({"format", "format_map", "strip", "rstrip", "tolist", "to_list", "copy"})
"""Methods whose result begins as what they are called on does."""

_DEEP = 12

_GIVEN = re.compile(r"(?:setup_chat_format|(?:clone|get)_chat_template)\(|(?<!apply_)\bchat_template\s*=(?!=)")
"""What gives a tokenizer another template than its model's."""


class Beginnings:
    """Follows texts through functions of a file and of the files that it works with."""

    def __init__(self, script: Script, near: Sequence[Script]) -> None:
        self.script, self.files = script, (script, *near)
        self.by_hand: ast.expr | None = None
        """Where the token that was seen last is written by hand."""

        sources = [one.source for one in self.files]
        self._another = any(map(_GIVEN.search, sources)) and not any("bos_token" in one for one in sources)
        """The template is not the model's, as ChatML, which begins with a mark of its own."""

        self._functions: dict[str, list[Function]] = {}
        for one in self.files:
            for node in ast.walk(one.tree):
                if isinstance(node, Function):
                    self._functions.setdefault(node.name, []).append(node)

    def begins(self, node: ast.expr | None, room: Room, depth: int = 0) -> bool:
        """It surely does, in every way that it can come about."""
        if node is None or depth > _DEEP:
            return False
        deeper = depth + 1
        match node:
            case ast.Constant():
                return isinstance(node.value, str) and node.value.startswith(MARKS) and self._hand(node)
            case ast.JoinedStr():
                first = node.values[0] if node.values else None
                return self.begins(first.value if isinstance(first, ast.FormattedValue) else first, room, deeper)
            case ast.BinOp(op=ast.Add() | ast.Mod()):
                return self.begins(node.left, room, deeper)
            case ast.IfExp():
                return self.begins(node.body, room, deeper) and self.begins(node.orelse, room, deeper)
            case ast.List() | ast.Tuple():
                return bool(node.elts) and all(self.begins(one, room, deeper) for one in node.elts)
            case ast.Dict():
                return bool(node.values) and all(self.begins(one, room, deeper) for one in node.values)
            case ast.ListComp() | ast.GeneratorExp():
                return self.begins(node.elt, room, deeper)
            case ast.Attribute():
                return (node.attr == "bos_token" and self._hand(node)) or self._member(node.attr, deeper)
            case ast.Subscript():
                return not isinstance(node.slice, ast.Slice) and self._of_a_table(node, deeper)
            case ast.Call():
                return self._call(node, room, deeper)
            case ast.Name():
                return self._name(node.id, room, deeper)
        return False

    def _hand(self, node: ast.expr) -> bool:
        self.by_hand = node
        return True

    def _call(self, node: ast.Call, room: Room, depth: int) -> bool:
        if isinstance(node.func, ast.Name):
            return self._returned(node.func.id, depth)
        if not isinstance(node.func, ast.Attribute):
            return False
        name, owner = node.func.attr, node.func.value
        if name == "apply_chat_template":
            if self._another:
                return False
            return any(
                word.arg == "tokenize" and isinstance(word.value, ast.Constant) and word.value.value is False
                for word in node.keywords
            )
        if name in _KEEPS or (name == "replace" and not _takes_it_out(node)):
            return self.begins(owner, room, depth)
        if name == "join" and node.args:
            return self._joined(node.args[0], room, depth)
        return isinstance(owner, ast.Name) and self._returned(name, depth)

    def _joined(self, parts: ast.expr, room: Room, depth: int) -> bool:
        """The first of a list."""
        if isinstance(parts, ast.Name):
            given = list(_given(parts.id, room))
            parts = given[0] if len(given) == 1 else parts
        return isinstance(parts, ast.List) and bool(parts.elts) and self.begins(parts.elts[0], room, depth)

    def _returned(self, name: str, depth: int) -> bool:
        """By the one function of that name."""
        found = self._functions.get(name, [])
        if len(found) != 1:
            return False
        returned = [one.value for one in own_nodes(found[0]) if isinstance(one, ast.Return) and one.value is not None]
        return bool(returned) and all(self.begins(one, found[0], depth) for one in returned)

    def _name(self, name: str, room: Room, depth: int) -> bool:
        given = [one for one in _given(name, room) if not _goes_on(one, name)]
        appended = list(_appended(name, room))
        full = [one for one in given if not (isinstance(one, ast.List) and not one.elts)]
        if any(isinstance(one, ast.Lambda) and one is not room and _is_asked_for(name, one) for one in own_nodes(room)):
            return False  # which of both is meant is not told
        if given or appended:
            return bool(full or appended) and all(self.begins(one, room, depth) for one in (*full, *appended))
        if _is_asked_for(name, room) or room is self.script.tree:
            return False
        return self._of_a_module(name, depth)

    def _of_a_module(self, name: str, depth: int) -> bool:
        """A name at the top of the file, or of one that it is imported from."""
        original = self.script.imports.get(name, "").rpartition(".")[2] or name
        for one in self.files:
            given = [value for value in _given(original, one.tree) if not _goes_on(value, original)]
            if given:
                return all(self.begins(value, one.tree, depth) for value in given)
        return False

    def _member(self, name: str, depth: int) -> bool:
        """`self.template`, `Prompts.CHAT`, `prompts.CHAT`: what every file gives that name."""
        given = [
            node.value
            for one in self.files
            for node in ast.walk(one.tree)
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if (isinstance(target, ast.Attribute) and target.attr == name)
            or (isinstance(target, ast.Name) and target.id == name)
        ]
        return bool(given) and all(self.begins(one, self.script.tree, depth) for one in given)

    def _of_a_table(self, node: ast.Subscript, depth: int) -> bool:
        """`PROMPTS["with_input"]`, of a table at the top of a file."""
        return isinstance(node.value, ast.Name) and self._of_a_module(node.value.id, depth)


def _takes_it_out(replaces: ast.Call) -> bool:
    text = ast.unparse(replaces)
    return "bos" in text or any(mark in text for mark in MARKS)


def _given(name: str, room: Room) -> Iterator[ast.expr]:
    """What stands behind `name =` in it; of loops, what they go through."""
    for node in own_nodes(room):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _of_target(target, node.value, name)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield from _of_target(node.target, node.value, name)
        elif isinstance(node, ast.For | ast.comprehension):
            yield from _of_target(node.target, node.iter, name)


def _of_target(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr]:
    if isinstance(target, ast.Name) and target.id == name:
        yield value
    elif isinstance(target, ast.Tuple) and any(isinstance(one, ast.Name) and one.id == name for one in target.elts):
        at = next(place for place, one in enumerate(target.elts) if isinstance(one, ast.Name) and one.id == name)
        zipped = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "zip"
        parts = (
            value.elts if isinstance(value, ast.Tuple) else value.args if zipped and isinstance(value, ast.Call) else []
        )
        yield parts[at] if at < len(parts) else value


def _appended(name: str, room: Room) -> Iterator[ast.expr]:
    for node in own_nodes(room):
        func = node.func if isinstance(node, ast.Call) and node.args else None
        if isinstance(func, ast.Attribute) and func.attr == "append" and ast.unparse(func.value) == name:
            assert isinstance(node, ast.Call)
            yield node.args[0]


def _goes_on(value: ast.expr, name: str) -> bool:
    """`text = text + more`, `text = text.strip()`: it begins as it did."""
    while True:
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            value = value.left
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _KEEPS:
            value = value.func.value
        elif isinstance(value, ast.JoinedStr) and value.values and isinstance(value.values[0], ast.FormattedValue):
            value = value.values[0].value
        else:
            return isinstance(value, ast.Name) and value.id == name


def _is_asked_for(name: str, room: Room) -> bool:
    """A parameter of the function."""
    held = room.args if isinstance(room, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) else None
    parameters = [] if held is None else [*held.posonlyargs, *held.args, *held.kwonlyargs, held.vararg, held.kwarg]
    return any(one is not None and one.arg == name for one in parameters)
