"""A file together with what it imports to read its command line: `from args import parse_args`, `add_data_flags(parser)`."""

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from dynotune.audit.facts.script import Script
from dynotune.audit.read.python.bindings import FUNCTIONS, dotted

MOST = 3
"""Files that are followed one behind the other."""

_ASKS = ("Parser", "add_argument")


def with_its_parser(script: Script, others: Mapping[str, Script]) -> ast.Module:
    """The file's tree, with the definitions in front that it imports from the project and that make, fill or ask a parser;
    its own tree where there are none."""
    if not any(_asks(one.source) for one in others.values()):
        return script.tree
    return _Followed(script, others).tree_of(script, 0)


def _asks(source: str) -> bool:
    return any(word in source for word in _ASKS)


class _Followed:
    """What a program's files import of each other. Each file is read once at each depth: the paths on which it is reached
    are many more than the files."""

    def __init__(self, program: Script, others: Mapping[str, Script]) -> None:
        self.program = program
        self.others = others
        self.trees: dict[tuple[str, int], ast.Module] = {}
        self.asking: dict[ast.stmt, bool] = {}
        own = program.file.rpartition("/")[0]
        above = ["/".join(own.split("/")[:number]) for number in range(own.count("/") + 1)] if own else []
        self.roots = [own, *(f"{one}/src".lstrip("/") for one in (own, "", *above)), "", *above]

    def tree_of(self, script: Script, depth: int) -> ast.Module:
        key = (script.file, depth)
        if key not in self.trees:
            self.trees[key] = self._read(script, depth)
        return self.trees[key]

    def _read(self, script: Script, depth: int) -> ast.Module:
        if depth >= MOST:
            return script.tree
        names = _used(script.tree)
        twice = _bound_twice(script.tree)
        found: dict[ast.stmt, None] = {}
        called: dict[str, str] = {}
        for local, imported in script.imports.items():
            led = self.file_of(imported, script) if local in names - twice else None
            if led is None or led[0].file in (script.file, self.program.file):
                continue
            other, name = led
            below = self.tree_of(other, depth + 1)
            if below is other.tree and not _asks(other.source):
                continue
            taken = list(_reached(below, {name} if name else _attributes_of(local, script.tree)))
            if any(self._is_asking(one) for one in taken):
                found |= dict.fromkeys(taken)
                called[local] = name
        return _joined(script.tree, tuple(found), tuple(called.items())) if found else script.tree

    def _is_asking(self, statement: ast.stmt) -> bool:
        if statement not in self.asking:
            self.asking[statement] = _asks(ast.unparse(statement))
        return self.asking[statement]

    def file_of(self, imported: str, script: Script, seen: frozenset[str] = frozenset()) -> tuple[Script, str] | None:
        """The project's file behind a dotted name, and the name in it (empty: the file itself); None: none, or several.
        seen: the files that lead here, since two may import a name from each other."""
        dots = len(imported) - len(imported.lstrip("."))
        parts = [part for part in imported.split(".") if part]
        folder = script.file.split("/")[:-1]
        if dots > len(folder) + 1:
            return None
        roots = ["/".join(folder[: len(folder) - dots + 1])] if dots else self.roots
        for used in (len(parts), len(parts) - 1):
            fits = self._files("/".join(parts[:used]), roots) if used > 0 else []
            fits = [one for one in fits if one.file != script.file]
            if len(fits) != 1:
                continue
            name = "" if used == len(parts) else parts[-1]
            again = fits[0].imports.get(name, "")  # `from .args import parse_args` in an `__init__.py`
            if not again or fits[0].file in seen or name in _bound_twice(fits[0].tree):
                return fits[0], name
            return self.file_of(again, fits[0], seen | {script.file, fits[0].file}) or (fits[0], name)
        return None

    def _files(self, path: str, roots: Sequence[str]) -> list[Script]:
        """Those that the path may mean; the program's own folder goes before the others, as in `sys.path`."""
        found: dict[str, Script] = {}
        for number, root in enumerate(roots):
            for end in (".py", "/__init__.py"):
                file = f"{root}/{path}{end}".lstrip("/")
                if file in self.others:
                    found[file] = self.others[file]
            if number == 0 and found:
                break
        return list(found.values())


def _bound_twice(tree: ast.Module) -> set[str]:
    """Names that two different imports bind (`if`, `try`): which of them the run takes is not known."""
    meant: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                meant.setdefault(one.asname or one.name, set()).add(f"{node.level} {node.module} {one.name}")
        elif isinstance(node, ast.Import):
            for one in node.names:
                meant.setdefault(one.asname or one.name, set()).add(one.name)
    return {name for name, found in meant.items() if len(found) > 1}


@lru_cache(maxsize=64)
def _joined(tree: ast.Module, more: tuple[ast.stmt, ...], called: tuple[tuple[str, str], ...]) -> ast.Module:
    """One tree for the same parts, since what is known of a tree is kept by it. called: what the names that it imports mean,
    empty for a file."""
    own = _Renamed(dict(called)).visit(copy.deepcopy(tree))
    return ast.fix_missing_locations(ast.Module(body=[*more, *own.body], type_ignores=[]))


class _Renamed(ast.NodeTransformer):
    """Names that are imported, as the file calls them that defines them."""

    def __init__(self, called: Mapping[str, str]) -> None:
        self.called = called

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self.called.get(node.id) or node.id, node.ctx), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if self.called.get(dotted(node.value)) == "":
            return ast.copy_location(ast.Name(node.attr, node.ctx), node)
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        kept = [one for one in node.names if (one.asname or one.name) not in self.called]
        return ast.copy_location(ast.ImportFrom(node.module, kept, node.level) if kept else ast.Pass(), node)


def _reached(tree: ast.Module, wanted: set[str]) -> Iterator[ast.stmt]:
    """What runs when the file is imported, and the functions that the wanted names come to."""
    functions = {one.name: one for one in tree.body if isinstance(one, FUNCTIONS)}
    defined = set(functions.values())
    rest = {one: None for one in tree.body if one not in defined and not _is_main(one)}
    todo = [*wanted, *(name for one in rest for name in _used(one))]
    kept: set[str] = set()
    while todo:
        name = todo.pop()
        if name in functions and name not in kept:
            kept.add(name)
            todo += _used(functions[name])
    yield from (one for one in tree.body if one in rest or (isinstance(one, FUNCTIONS) and one.name in kept))


def _is_main(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def _used(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _attributes_of(name: str, tree: ast.Module) -> set[str]:
    """`parse_args` of `options.parse_args()`."""
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and dotted(node.value) == name}
