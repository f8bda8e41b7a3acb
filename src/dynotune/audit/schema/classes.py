"""The fields of a dataclass or pydantic model, read from source text: names, types, defaults, inherited ones too.

Nothing is imported, since an audited package may be broken, of another version, or not to be trusted.
"""

import ast
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynotune.audit.facts.setting import Unknown
from dynotune.audit.regular import start_of

_NO_LITERAL = Unknown("its default is computed")
_MADE: Mapping[str, Any] = {"list": [], "dict": {}, "tuple": ()}
_DEEPEST = 12
"""Levels of bases and imports that are followed."""

_LONGEST = 4 << 20
"""Bytes of a module that is read."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a configuration. `default` is a plain value, or `Unknown` where code computes it."""

    name: str
    type: str
    default: Any = None
    required: bool = False
    deprecated: str = ""
    """What its help says, where that begins with "deprecated"."""

    choices: tuple[Any, ...] = ()
    """Of a `Literal`."""


@dataclass(frozen=True, slots=True)
class Packages:
    """Where the sources of packages lie: the folder that holds `__init__.py`, by import name."""

    folders: Mapping[str, Path]

    def fields(self, package: str, module: str, name: str) -> dict[str, Key]:
        """The fields of a class, bases first. Empty where the source is not there or has no such class."""
        folder = self.folders.get(package)
        return self._fields(package, f"{package}.{module}", name, 0) if folder is not None else {}

    def _fields(self, package: str, module: str, name: str, depth: int) -> dict[str, Key]:
        tree = _tree(self._file(module))
        if tree is None or depth > _DEEPEST:
            return {}
        node = next((item for item in tree.body if isinstance(item, ast.ClassDef) and item.name == name), None)
        if node is None:
            origin = _imported(tree, module, name)
            if origin is not None and origin[0].partition(".")[0] in self.folders:
                return self._fields(package, *origin, depth + 1)
            found = self._search(module, name)
            return self._fields(package, found, name, depth + 1) if found and found != module else {}
        fields: dict[str, Key] = {}
        for base in reversed(node.bases):
            if isinstance(base, ast.Name):
                base_name = _assigned_to(tree, base.id)
                fields |= self._fields(package, module, base_name, depth + 1)
        return fields | {key.name: key for key in _own_fields(node)}

    def _file(self, module: str) -> Path | None:
        root, *rest = module.split(".")
        folder = self.folders.get(root)
        if folder is None:
            return None
        path = folder.joinpath(*rest)
        return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)

    def _search(self, module: str, name: str) -> str | None:
        """The module of a package's top level that defines a class: lazy packages do not say it in `__init__.py`."""
        root = module.partition(".")[0]
        if module != root:
            return None
        mark = f"class {name}("
        also = f"class {name}:"
        for file in sorted(self.folders[root].glob("*.py")):
            text = _text(file)
            if mark in text or also in text:
                return f"{root}.{file.stem}"
        return None


def _text(file: Path) -> str:
    try:
        return start_of(file, _LONGEST).decode("utf-8", "replace")
    except OSError:
        return ""


@functools.lru_cache(maxsize=256)
def _parsed(file: Path, stamp: float) -> ast.Module | None:
    try:
        return ast.parse(_text(file))
    except (SyntaxError, ValueError, RecursionError):
        return None


def _tree(file: Path | None) -> ast.Module | None:
    return _parsed(file, file.stat().st_mtime) if file is not None else None


def _imports(tree: ast.Module) -> Iterator[ast.ImportFrom]:
    """Of the module's level, and under its conditions (`if TYPE_CHECKING`)."""
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If):
            pending += [*node.body, *node.orelse]
        elif isinstance(node, ast.Try):
            pending += node.body


def _imported(tree: ast.Module, module: str, name: str) -> tuple[str, str] | None:
    """The module and name that a local name was imported from."""
    for node in _imports(tree):
        for alias in node.names:
            if (alias.asname or alias.name) != name:
                continue
            if not node.level:
                return node.module or "", alias.name
            above = module.split(".")[: -node.level]
            return ".".join([*above, *([node.module] if node.module else [])]), alias.name
    return None


def _assigned_to(tree: ast.Module, name: str) -> str:
    """Another name of a class: `Base = Seq2SeqTrainingArguments`, the last of the branches."""
    found = name
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    found = node.value.id
    return found


def _own_fields(node: ast.ClassDef) -> Iterator[Key]:
    named: dict[str, ast.expr] = {}
    for statement in _statements(node.body):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            named[statement.targets[0].id] = statement.value
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name, type_ = statement.target.id, ast.unparse(statement.annotation)
        if type_.startswith("ClassVar"):
            continue
        key = _key(name, type_, statement.value, named)
        yield key
        if alias := _argument(statement.value, "alias"):
            yield Key(str(_literal(alias, named)), key.type, key.default, key.required, key.deprecated, key.choices)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """A class's statements; of conditions, both branches, so that the usual (the later) one wins."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _statements(statement.orelse)
            yield from _statements(statement.body)
        else:
            yield statement


def _argument(value: ast.expr | None, name: str) -> ast.expr | None:
    if not isinstance(value, ast.Call):
        return None
    return next((keyword.value for keyword in value.keywords if keyword.arg == name), None)


def _key(name: str, type_: str, value: ast.expr | None, named: Mapping[str, ast.expr]) -> Key:
    choices = _choices(type_)
    if value is None:
        return Key(name, type_, required=True, choices=choices)
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or value.func.id.lower() != "field":
        return Key(name, type_, _literal(value, named), choices=choices)
    positional = value.args[0] if value.args else None
    default = _argument(value, "default") or positional
    factory = _argument(value, "default_factory")
    text = ""
    metadata = _argument(value, "metadata")
    for pairs in [metadata] if isinstance(metadata, ast.Dict) else []:
        for entry, words in zip(pairs.keys, pairs.values, strict=True):
            if isinstance(entry, ast.Constant) and entry.value == "help":
                text = str(_literal(words, named))
    deprecated = text if text.lower().startswith("deprecated") else ""
    if default is not None:
        return Key(name, type_, _literal(default, named), deprecated=deprecated, choices=choices)
    if factory is not None:
        made = _MADE.get(factory.id, _NO_LITERAL) if isinstance(factory, ast.Name) else _NO_LITERAL
        if isinstance(factory, ast.Lambda):
            made = _literal(factory.body, named)
        return Key(name, type_, made, deprecated=deprecated, choices=choices)
    return Key(name, type_, required=True, deprecated=deprecated, choices=choices)


def _literal(value: ast.expr, named: Mapping[str, ast.expr]) -> Any:
    if isinstance(value, ast.Name) and value.id in named:
        return _literal(named[value.id], {})
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        pass
    if isinstance(value, ast.Attribute) and value.attr.isupper():
        return value.attr.lower()  # `IntervalStrategy.NO`: transformers' values are their names in small letters
    return _NO_LITERAL


def _choices(type_: str) -> tuple[Any, ...]:
    try:
        tree = ast.parse(type_, mode="eval")
    except SyntaxError:
        return ()
    found: list[Any] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal":
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            found += [item.value for item in items if isinstance(item, ast.Constant)]
        elif isinstance(node, ast.Name) and node.id in {"str", "int", "float", "dict", "list", "Any"}:
            return ()
    return tuple(found)
