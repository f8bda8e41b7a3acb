"""The parsers of one file's command line: which call adds a flag to which of them, and which of them a run asks.

Followed by names: through groups, sub-commands, parents, loops over parsers and the file's own functions. A run begins at
the file's top: what stands in a function that nothing there mentions is no part of it. What cannot be followed opens a
parser (it may take more flags than are seen), and a file that asks too much is not judged at all.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from dynotune.audit.read.python.bindings import FUNCTIONS, Bindings, Definition, Step, TooMuchError, last

DATACLASSES = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})
KINDS = DATACLASSES | {"ArgumentParser"}
_GROUPS = frozenset({"add_argument_group", "add_mutually_exclusive_group", "add_subparsers"})
_ADDS = _GROUPS | {"add_argument", "add_parser", "set_defaults"}
_PARSES = ("parse_args", "parse_known_args", "parse_yaml", "parse_json", "parse_dict")
_HARMLESS = frozenset({"print", "isinstance", "type", "id", "repr", "str", "autocomplete"})
"""Calls that are given a parser and add nothing to it."""

MOST = 300
"""Parsers of a file; more are not told apart."""


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
        seen: set[Parser] = set()
        todo: list[tuple[Parser, tuple[str, ...]]] = [(self, words)]
        while todo:
            one, among = todo.pop()
            if one in seen:
                continue
            seen.add(one)
            yield one
            chosen = [held for held in one.below if set(held.commands) & set(among)]
            named = all(held.commands for held in one.below)
            todo += [(held, among) for held in (chosen if named and len(chosen) == 1 else one.below)]
            todo += [(held, ()) for held in one.parents]


class Parsers:
    """All of one file."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.all: list[Parser] = []
        self.stray: list[ast.Call] = []
        """`add_argument` on what could not be followed: it may be of any of them."""

        self.unknown_parses = False
        """A run asks a parser that could not be followed."""

        self._made: dict[ast.AST, Parser] = {}
        self._known: dict[Step, frozenset[Parser]] = {}
        try:
            self._names = Bindings(tree)
            for call in self._names.calls:
                if last(call.func) in KINDS or last(call.func) == "add_parser":
                    self._made[call] = Parser(call, last(call.func))
            if len(self._made) > MOST:
                raise TooMuchError
            if self._made:
                self._related()
        except (TooMuchError, RecursionError):
            self.all, self.stray, self._made, self.unknown_parses = [], [], {}, True

    def asked(self) -> list[Parser]:
        """Those that read the command line when the file runs, parents and sub-commands apart."""
        return [one for one in self.all if one.parses]

    def of(self, parse: ast.Call) -> frozenset[Parser]:
        """Those that a call of `parse_args` asks; empty: not known."""
        if not self._made or not isinstance(parse.func, ast.Attribute):
            return frozenset()
        try:
            return self.held(parse.func.value)
        except TooMuchError:
            return frozenset()

    @property
    def work(self) -> int:
        """Steps that it took to follow names."""
        return self._names.work

    def held(self, node: Step) -> frozenset[Parser]:
        """What an expression may be of them, a container any of its elements; empty: none, or not known. Raises
        `TooMuchError`."""
        if node not in self._known:
            self._follow(node)
        return self._known[node]

    def reaches(self, node: ast.AST) -> bool:
        """Whether a run may come to it, beginning at the file's top."""
        inside = self._names.definition(node)
        return inside is self.tree or inside in self._reached

    def _related(self) -> None:
        self.all += self._made.values()
        for parser in self.all:
            if parser.kind == "add_parser":
                self._below(parser)
        for parser in self.all:
            call, above = parser.made, parser
            while above.above is not None:
                above = above.above
            parser.kind = above.kind
            listed = _keyword(call, "parents")
            parser.is_open = parser.is_open or (
                (listed is not None and not (isinstance(listed, ast.List | ast.Tuple) and listed.elts))
                or _keyword(call, "fromfile_prefix_chars") is not None
                or any(keyword.arg is None for keyword in call.keywords)
            )
            for element in _elements(listed):
                found = self.held(element)
                fit = [one for one in found if parser not in one.family()]
                parser.parents += fit
                parser.is_open = parser.is_open or not found or len(fit) < len(found)
        for call in self._names.calls:
            self._used(call)
        for node in self._names.attributes:
            if node.attr in _ADDS:  # `add = parser.add_argument`
                self._opened(node.value)

    def _below(self, parser: Parser) -> None:
        """Under the parser that it is a sub-command of. Where that is not known, any may take it, with whatever it adds."""
        call = parser.made
        names = [*call.args[:1], *_elements(_keyword(call, "aliases"))]
        texts = [one.value for one in names if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        parser.commands = tuple(texts) if call.args and len(texts) == len(names) else ()
        found = self.of(call)
        fit = [one for one in found if one not in parser.family()]
        for above in fit:
            parser.above = above
            above.below.append(parser)
        if not found or len(fit) < len(found):
            for one in self.all:
                one.is_open = True

    def _used(self, call: ast.Call) -> None:
        name = last(call.func)
        of = self.held(call.func.value) if isinstance(call.func, ast.Attribute) else frozenset()
        self._names.charge(1 + len(of))
        if name in ("add_argument", "set_defaults"):
            for parser in of:
                parser.adds.append(call)
            if not of and name == "add_argument":
                self.stray.append(call)
        elif name.startswith(_PARSES) and self.reaches(call) and _reads_the_command_line(call):
            for parser in of:
                parser.parses.append(call)
            own = isinstance(call.func, ast.Name) and name in self._names.definitions
            self.unknown_parses = self.unknown_parses or not (of or own)
        if call in self._made or name in _HARMLESS:
            return
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            if self.held(given) and not self._names.takes(call, given):
                self._opened(given)

    def _opened(self, node: ast.expr) -> None:
        """It leaves what can be followed."""
        for parser in self.held(node):
            self._names.charge()
            parser.is_open = True

    def _next(self, step: Step) -> Iterator[Step]:
        if isinstance(step, ast.Call) and isinstance(step.func, ast.Attribute) and step.func.attr in _GROUPS:
            return iter((step.func.value,))
        return self._names.next(step)

    def _follow(self, root: Step) -> None:
        """What is behind a step and all steps on the way, each looked at once; those that lead to each other hold the same
        (Tarjan's components)."""
        number: dict[Step, int] = {}
        low: dict[Step, int] = {}
        found: dict[Step, set[Parser]] = {}
        path: list[Step] = []
        todo: list[tuple[Step, Iterator[Step]]] = []

        def enter(step: Step) -> None:
            number[step] = low[step] = len(number)
            made = self._made.get(step) if isinstance(step, ast.Call) else None
            found[step] = {made} if made is not None else set()
            path.append(step)
            todo.append((step, iter(()) if made is not None else self._next(step)))

        enter(root)
        while todo:
            step, rest = todo[-1]
            one = next(rest, None)
            self._names.charge()
            if one is None:
                todo.pop()
                if low[step] == number[step]:
                    held = frozenset(found[step])
                    while step not in self._known:
                        self._known[path.pop()] = held
                if todo:
                    above = todo[-1][0]
                    low[above] = min(low[above], low[step])
                    found[above] |= found[step]
            elif one in self._known:
                found[step] |= self._known[one]
            elif one in number:
                low[step] = min(low[step], number[one])
            else:
                enter(one)

    @cached_property
    def _reached(self) -> frozenset[ast.AST]:
        found: set[ast.AST] = set()
        names: set[str] = set()
        todo: list[ast.AST] = [self.tree]
        while todo:
            for node in _own(todo.pop()):
                name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
                new: list[Definition] = self._names.definitions.get(name, []) if name not in names else []
                names.add(name)
                if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node.decorator_list:
                    new = [*new, node]  # what decorates it may call it
                for one in new:
                    if one not in found:
                        found.add(one)
                        inside = [one, *one.body] if isinstance(one, ast.ClassDef) else [one]
                        found |= {held for held in inside if isinstance(held, (*FUNCTIONS, ast.ClassDef))}
                        todo += inside
        return frozenset(found)


@lru_cache(maxsize=64)
def parsers_of(tree: ast.Module) -> Parsers:
    """Of a file, worked out once for all that asks."""
    return Parsers(tree)


def _own(root: ast.AST) -> Iterator[ast.AST]:
    """What runs with a file, function or class; of what is defined in it, the definition and no more."""
    stack = list(ast.iter_child_nodes(root))
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            stack += node.decorator_list
            if isinstance(node, ast.ClassDef):
                stack += node.bases
                stack += [one for one in node.body if not isinstance(one, FUNCTIONS)]
        else:
            stack += ast.iter_child_nodes(node)


def _reads_the_command_line(parse: ast.Call) -> bool:
    """Not a list that stands there: `parse_args([])`, `parse_args("--lr 1".split())`. Files may be named by it."""
    if not last(parse.func).startswith(("parse_args", "parse_known_args")):
        return True
    given = parse.args[0] if parse.args else _keyword(parse, "args")
    if given is None or (isinstance(given, ast.Constant) and given.value is None):
        return True
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute):
        given = given.func.value
    return not isinstance(given, ast.List | ast.Tuple | ast.Constant | ast.Dict)


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _elements(node: ast.expr | None) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.List | ast.Tuple) else []
