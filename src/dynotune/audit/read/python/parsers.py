"""The parsers of one file's command line: which call adds a flag to which of them, and which of them a run asks.

Followed by names: through groups, sub-commands, parents, loops over parsers and the file's own functions. A run begins at
the file's top: what stands in a function that nothing there mentions is no part of it.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

DATACLASSES = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})
KINDS = DATACLASSES | {"ArgumentParser"}
_GROUPS = frozenset({"add_argument_group", "add_mutually_exclusive_group", "add_subparsers"})
_PARSES = ("parse_args", "parse_known_args", "parse_yaml", "parse_json", "parse_dict")
_HARMLESS = frozenset({"print", "isinstance", "type", "id", "repr", "str", "autocomplete", *KINDS})
"""Calls that are given a parser and add nothing to it (`parents=[...]` is followed)."""

_DEEP = 12

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(slots=True, eq=False)
class Parser:
    made: ast.Call
    kind: str
    """`ArgumentParser`, or the class of a parser of dataclasses."""

    above: "Parser | None" = None
    """Whose sub-command it is."""

    commands: tuple[str, ...] = ()
    """What the sub-command is called; empty where that is worked out."""

    below: list["Parser"] = field(default_factory=list)
    parents: list["Parser"] = field(default_factory=list)
    adds: list[ast.Call] = field(default_factory=list)
    """`add_argument` and `set_defaults`, through groups, too."""

    parses: list[ast.Call] = field(default_factory=list)
    """Where it reads the command line, in what a run reaches."""

    is_open: bool = False
    """Something adds to it that cannot be followed."""

    def family(self, words: tuple[str, ...] = ()) -> Iterator["Parser"]:
        """It, its parents, and its sub-commands: all of them, or the one that stands among `words`."""
        yield self
        for parent in self.parents:
            yield from parent.family()
        chosen = [one for one in self.below if set(one.commands) & set(words)]
        named = all(one.commands for one in self.below)
        for one in chosen if named and len(chosen) == 1 else self.below:
            yield from one.family(words)


class Parsers:
    """All of one file."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._above: dict[ast.AST, ast.AST] = {}
        self._calls: list[ast.Call] = []
        self._definitions: dict[str, list[Definition]] = {}
        self._bound: dict[tuple[ast.AST, str], list[tuple[ast.stmt, ast.expr]]] = {}
        self._known: dict[ast.expr, frozenset[Parser]] = {}
        self._walked()
        self.all: list[Parser] = []
        self._made: dict[ast.Call, Parser] = {}
        for call in self._calls:
            if _last(call.func) in KINDS or _last(call.func) == "add_parser":
                self._made[call] = Parser(call, _last(call.func))
        self.stray: list[ast.Call] = []
        """`add_argument` on what could not be followed: it may be of any of them."""

        self.unknown_parses = False
        """A run asks a parser that could not be followed."""

        if self._made:
            self._related()

    def asked(self) -> list[Parser]:
        """Those that read the command line when the file runs, parents and sub-commands apart."""
        return [one for one in self.all if one.parses]

    def of(self, parse: ast.Call) -> frozenset[Parser]:
        """Those that a call of `parse_args` asks; empty: not known."""
        return self.held(parse.func.value) if isinstance(parse.func, ast.Attribute) and self._made else frozenset()

    def held(self, node: ast.expr, depth: int = 0) -> frozenset[Parser]:
        """What an expression may be of them; empty: none, or not known."""
        if node not in self._known:
            self._known[node] = frozenset()  # what comes back to itself adds nothing
            self._known[node] = self._held(node, depth) if depth < _DEEP else frozenset()
        return self._known[node]

    def reaches(self, node: ast.AST) -> bool:
        """Whether a run may come to it, beginning at the file's top."""
        inside: ast.AST | None = node
        while inside is not None:
            if isinstance(inside, (*_FUNCTIONS, ast.ClassDef)):
                return inside in self._reached
            inside = self._above.get(inside)
        return True

    def _walked(self) -> None:
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self._above[child] = node
            if isinstance(node, ast.Call):
                self._calls.append(node)
            elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                self._definitions.setdefault(node.name, []).append(node)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, node, [node.value])
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._bind(node.target, node, [node.value])
            elif isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple | ast.List):
                self._bind(node.target, node, node.iter.elts)

    def _bind(self, target: ast.expr, statement: ast.stmt, values: list[ast.expr]) -> None:
        if isinstance(target, ast.Name | ast.Attribute):
            scope = self._scope(statement, of_class=isinstance(target, ast.Attribute))
            held = self._bound.setdefault((scope, ast.unparse(target)), [])
            held += [(statement, value) for value in values]

    def _scope(self, node: ast.AST, of_class: bool = False) -> ast.AST:
        """The function that it stands in, or the class of that, or the file."""
        inside = self._above.get(node)
        while inside is not None and not isinstance(inside, ast.ClassDef if of_class else _FUNCTIONS):
            inside = self._above.get(inside)
        return inside or self.tree

    def _related(self) -> None:
        for call, parser in self._made.items():
            self.all.append(parser)
            if parser.kind == "add_parser":
                names = [*call.args[:1], *_elements(_keyword(call, "aliases"))]
                texts = [one.value for one in names if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                parser.commands = tuple(texts) if call.args and len(texts) == len(names) else ()
                for above in self.of(call):
                    parser.above, parser.kind = above, above.kind
                    above.below.append(parser)
            listed = _keyword(call, "parents")
            for parent in _elements(listed):
                parser.parents += self.held(parent)
            parser.is_open = (
                (listed is not None and len(parser.parents) < max(len(_elements(listed)), 1))
                or _keyword(call, "fromfile_prefix_chars") is not None
                or any(keyword.arg is None for keyword in call.keywords)
            )
        for call in self._calls:
            self._used(call)

    def _used(self, call: ast.Call) -> None:
        name = _last(call.func)
        of = self.of(call) if isinstance(call.func, ast.Attribute) else frozenset()
        if name in ("add_argument", "set_defaults"):
            for parser in of:
                parser.adds.append(call)
            if not of and name == "add_argument":
                self.stray.append(call)
        elif name.startswith(_PARSES) and self.reaches(call) and _reads_the_command_line(call):
            for parser in of:
                parser.parses.append(call)
            own = isinstance(call.func, ast.Name) and name in self._definitions
            self.unknown_parses = self.unknown_parses or not (of or own)
        if name in _HARMLESS or (name in self._definitions and not of):
            return
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(given, ast.Name | ast.Attribute):
                for parser in self.held(given):
                    parser.is_open = True

    def _held(self, node: ast.expr, depth: int) -> frozenset[Parser]:
        if isinstance(node, ast.Call):
            if node in self._made:
                return frozenset({self._made[node]})
            if isinstance(node.func, ast.Attribute) and node.func.attr in _GROUPS:
                return self.held(node.func.value, depth + 1)
            found = frozenset[Parser]()
            for function in self._definitions.get(_last(node.func), ()):
                for inner in ast.walk(function):
                    if isinstance(inner, ast.Return) and inner.value is not None:
                        found |= self.held(inner.value, depth + 1)
            return found
        if isinstance(node, ast.IfExp):
            return self.held(node.body, depth + 1) | self.held(node.orelse, depth + 1)
        if isinstance(node, ast.Name | ast.Attribute):
            return frozenset().union(*(self.held(value, depth + 1) for value in self._values(node)))
        return frozenset()

    def _values(self, node: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
        """What may have been assigned to a name where it stands."""
        name = ast.unparse(node)
        scope = self._scope(node, of_class=isinstance(node, ast.Attribute))
        first = True
        while True:
            held = self._bound.get((scope, name), [])
            before = [one for one in held if _ends_before(one[0], node)] if first else held
            if before or held:
                yield from self._since_the_last(before or held, node) if first else (value for _, value in held)
                return
            if isinstance(scope, _FUNCTIONS) and name in _parameters(scope):
                yield from self._given(scope, name)
                return
            if scope is self.tree:
                return
            scope, first = self._scope(scope), False

    def _since_the_last(self, held: list[tuple[ast.stmt, ast.expr]], use: ast.AST) -> Iterator[ast.expr]:
        """Without what is certainly assigned anew before the use."""
        start = 0
        for number, (statement, _) in enumerate(held):
            if statement is not held[start][0] and self._comes_before(statement, use):
                start = number
        yield from (value for _, value in held[start:])

    def _comes_before(self, statement: ast.stmt, use: ast.AST) -> bool:
        """Both stand in one block, or the use in a block within it."""
        block = self._above.get(statement)
        inside = use
        while inside is not None and self._above.get(inside) is not block:
            inside = self._above.get(inside)  # type: ignore[assignment]
        if inside is None or isinstance(statement, ast.For):
            return False
        lists = [value for _, value in ast.iter_fields(block) if isinstance(value, list)] if block is not None else []
        return any(statement in one and inside in one for one in lists)

    def _given(self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[ast.expr]:
        """What the file's own calls give a function for one of its parameters."""
        names = _parameters(function)
        for call in self._calls:
            if _last(call.func) != function.name:
                continue
            by_name = _keyword(call, name)
            bound = names[1:] if names[:1] in (["self"], ["cls"]) and isinstance(call.func, ast.Attribute) else names
            if by_name is not None:
                yield by_name
            elif name in bound and bound.index(name) < len(call.args):
                yield call.args[bound.index(name)]

    @cached_property
    def _reached(self) -> frozenset[Definition]:
        found: set[Definition] = set()
        todo: list[ast.AST] = [self.tree]
        while todo:
            for node in _own(todo.pop()):
                name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
                new: list[Definition] = self._definitions.get(name, [])
                if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and node.decorator_list:
                    new = [*new, node]  # what decorates it may call it
                for one in new:
                    if one not in found:
                        found.add(one)
                        inside = [one, *one.body] if isinstance(one, ast.ClassDef) else [one]
                        found |= {held for held in inside if isinstance(held, (*_FUNCTIONS, ast.ClassDef))}
                        todo += inside
        return frozenset(found)


def _own(root: ast.AST) -> Iterator[ast.AST]:
    """What runs with a file, function or class; of what is defined in it, the definition and no more."""
    stack = list(ast.iter_child_nodes(root))
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            stack += node.decorator_list
            if isinstance(node, ast.ClassDef):
                stack += node.bases
                stack += [one for one in node.body if not isinstance(one, _FUNCTIONS)]
        else:
            stack += ast.iter_child_nodes(node)


def _ends_before(statement: ast.stmt, use: ast.expr) -> bool:
    """Its name is bound when the use runs, the first time that it does."""
    if isinstance(statement, ast.For):
        return statement.lineno <= use.lineno
    return (statement.end_lineno or 0, statement.end_col_offset or 0) <= (use.lineno, use.col_offset)


def _reads_the_command_line(parse: ast.Call) -> bool:
    """Not a list that stands there: `parse_args([])`, `parse_args("--lr 1".split())`. Files may be named by it."""
    if not _last(parse.func).startswith(("parse_args", "parse_known_args")):
        return True
    given = parse.args[0] if parse.args else _keyword(parse, "args")
    if given is None or (isinstance(given, ast.Constant) and given.value is None):
        return True
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute):
        given = given.func.value
    return not isinstance(given, ast.List | ast.Tuple | ast.Constant | ast.Dict)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = function.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _elements(node: ast.expr | None) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.List | ast.Tuple) else []


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
