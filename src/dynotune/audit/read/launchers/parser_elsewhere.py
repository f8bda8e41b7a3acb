"""A file together with what it imports to read its command line: `from args import parse_args`, `add_data_flags(parser)`."""

import ast
import copy
from collections.abc import Iterator, Mapping
from functools import lru_cache

from dynotune.audit.facts.script import Script
from dynotune.audit.read.python.bindings import FUNCTIONS, dotted

MOST = 3
"""Files that are followed one behind the other."""

_ASKS = ("Parser", "add_argument")


def with_its_parser(script: Script, others: Mapping[str, Script]) -> ast.Module:
    """The file's tree, with the definitions in front that it imports from the project and that make, fill or ask a parser;
    its own tree where there are none."""
    return _followed(script, others, {script.file}, 0)


def _followed(script: Script, others: Mapping[str, Script], seen: set[str], depth: int) -> ast.Module:
    names = _used(script.tree)
    found: list[ast.stmt] = []
    called: dict[str, str] = {}
    for local, imported in script.imports.items():
        led = _file_of(imported, script, others) if local in names and depth < MOST else None
        if led is None or led[0].file in seen:
            continue
        other, name = led
        below = _followed(other, others, seen | {script.file}, depth + 1)
        taken = list(_reached(below, {name} if name else _attributes_of(local, script.tree)))
        if any(word in ast.unparse(one) for one in taken for word in _ASKS):
            found += (one for one in taken if one not in found)
            called[local] = name
    return _joined(script.tree, tuple(found), tuple(called.items())) if found else script.tree


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


def _file_of(imported: str, script: Script, others: Mapping[str, Script]) -> tuple[Script, str] | None:
    """The project's file behind a dotted name, and the name in it (empty: the file itself); None: none, or several."""
    parts = [part for part in imported.lstrip(".").split(".") if part]
    for used in (len(parts), len(parts) - 1):
        ending = "/".join(parts[:used])
        fits = [
            one
            for file, one in others.items()
            if ending and f"/{file.removesuffix('.py').removesuffix('/__init__')}".endswith(f"/{ending}")
        ]
        fits = [one for one in fits if one.file != script.file]
        if len(fits) == 1:
            name = "" if used == len(parts) else parts[-1]
            again = fits[0].imports.get(name, "")  # `from .args import parse_args` in an `__init__.py`
            return (_file_of(again, fits[0], others) if again else None) or (fits[0], name)
    return None


def _reached(tree: ast.Module, wanted: set[str]) -> Iterator[ast.stmt]:
    """What runs when the file is imported, and the functions that the wanted names come to."""
    functions = {one.name: one for one in tree.body if isinstance(one, FUNCTIONS)}
    rest = [one for one in tree.body if one not in functions.values() and not _is_main(one)]
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
