"""A configuration of a script's own has a key that the class of options it fills has not: the script stops at it, or filters
it out without a word."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.given_configs import configurations_given
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import FUNCTIONS, own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.place import Place
from dynotune.audit.read.python.bindings import dotted

_LOADS = re.compile(r"(?:yaml\.(?:safe_|full_|unsafe_)?load|json\.loads?|tomllib\.loads?|toml\.load)$")
_SAYS_SO = re.compile(r"\braise\b|\bassert\b|\bexit\(|\bwarn|ignor|unknown|unused|skipp|dropp|print\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Lost:
    """Keys of a file that a class does not have."""

    config: ConfigFile
    keys: Sequence[tuple[str, Place]]
    made: Place
    name: str
    """Of the class."""

    filtered: bool
    """Left out; else the class refuses them."""


@dataclass(frozen=True, slots=True)
class _Filled:
    """`Options(**raw)`, of what a file held."""

    node: ast.AST
    name: str
    section: str
    filtered: bool


def keys_of_own_classes(project: Project) -> Iterator[Lost]:
    classes = _classes(project)
    for script in project.scripts if classes else ():
        for filled in _filled(script, frozenset(classes)):
            for config in configurations_given(script, project):
                values = config.values.get(filled.section) if filled.section else config.values
                prefix = f"{filled.section}." if filled.section else ""
                names = [key for key in values if isinstance(key, str)] if isinstance(values, Mapping) else []
                lost = [key for key in names if key not in classes[filled.name]]
                if lost and 2 * len(lost) <= len(names):
                    places = [(key, config.places.get(prefix + key, Place(config.file, key=key))) for key in lost]
                    yield Lost(config, places, place_of(script, filled.node), filled.name, filled.filtered)


def _classes(project: Project) -> dict[str, frozenset[str]]:
    """Plain dataclasses of the project, with all their fields, by names that only one class has."""
    nodes = [node for one in project.scripts for node in one.tree.body if isinstance(node, ast.ClassDef)]
    names = [node.name for node in nodes]
    found: dict[str, frozenset[str]] = {}
    by_name = {node.name: node for node in nodes if names.count(node.name) == 1}
    for name, node in by_name.items():
        family = _family(node, by_name)
        plain = [one for one in family if any("dataclass" in ast.unparse(mark) for mark in one.decorator_list)]
        if family and len(plain) == len(family) and not any(_makes_itself(one) for one in family):
            found[name] = frozenset(
                one.target.id
                for part in family
                for one in part.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            )
    return found


def _family(node: ast.ClassDef, by_name: Mapping[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """The class and its bases; empty where one of these is not the project's."""
    found = [node]
    for base in node.bases:
        inner = by_name.get(base.id) if isinstance(base, ast.Name) else None
        if inner is None or inner is node or len(found) > 8:
            return []
        above = _family(inner, {name: one for name, one in by_name.items() if one is not node})
        if not above:
            return []
        found += above
    return found


def _makes_itself(node: ast.ClassDef) -> bool:
    methods = [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
    return bool({"__init__", "__new__", "__setattr__"} & set(methods))


def _filled(script: Script, classes: frozenset[str]) -> Iterator[_Filled]:
    for room in (script.tree, *(node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef))):
        nodes = list(own_nodes(room, (*FUNCTIONS, ast.ClassDef)))
        loaded = {
            node.targets[0].id
            for node in nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and any(isinstance(one, ast.Call) and _LOADS.search(dotted(one.func)) for one in ast.walk(node.value))
        }
        changed = {
            one.value.id
            for node in nodes
            for one in ast.walk(node)
            if isinstance(one, ast.Subscript)
            and isinstance(one.ctx, ast.Store | ast.Del)
            and isinstance(one.value, ast.Name)
        } | {
            one.func.value.id
            for node in nodes
            for one in ast.walk(node)
            if isinstance(one, ast.Call)
            and isinstance(one.func, ast.Attribute)
            and one.func.attr in ("pop", "update")
            and isinstance(one.func.value, ast.Name)
        }
        speaks = bool(_SAYS_SO.search(ast.unparse(room))) if room is not script.tree else True
        for node in nodes:
            if isinstance(node, ast.Call):
                yield from _by_a_call(node, loaded - changed, classes, speaks)
            elif isinstance(node, ast.For) and not speaks:
                yield from _by_a_loop(node, nodes, loaded - changed, classes)


def _by_a_call(node: ast.Call, loaded: set[str], classes: frozenset[str], speaks: bool) -> Iterator[_Filled]:
    """`Options(**raw)`, `Options(**raw["train"])`, `Options(**{k: v for k, v in raw.items() if k in names})`."""
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in classes or len(node.keywords) != 1 or node.args or node.keywords[0].arg is not None:
        return
    match node.keywords[0].value:
        case ast.Name(id=held) if held in loaded:
            yield _Filled(node, name, "", False)
        case ast.Subscript(value=ast.Name(id=held), slice=ast.Constant(value=str(section))) if held in loaded:
            yield _Filled(node, name, section, False)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=held), attr="get"), args=[ast.Constant(value=str(section)), *_]
        ) if held in loaded:
            yield _Filled(node, name, section, False)
        case ast.DictComp(
            generators=[
                ast.comprehension(iter=ast.Call(func=ast.Attribute(value=ast.Name(id=held), attr="items"))) as one
            ]
        ) if (
            held in loaded
            and one.ifs
            and not speaks
            and re.search(
                r"fields|hasattr|__annotations__|__dataclass|names|known|valid|keys|allowed", ast.unparse(one.ifs[0])
            )
        ):
            yield _Filled(node, name, "", True)


def _by_a_loop(node: ast.For, nodes: Sequence[ast.AST], loaded: set[str], classes: frozenset[str]) -> Iterator[_Filled]:
    """`for k, v in raw.items(): if hasattr(options, k): setattr(options, k, v)`."""
    found = re.fullmatch(r"(\w+)\.items\(\)", ast.unparse(node.iter))
    test = node.body[0] if len(node.body) == 1 else None
    if found is None or found[1] not in loaded or not isinstance(test, ast.If) or test.orelse:
        return
    asked = re.search(r"hasattr\((\w+), \w+\)", ast.unparse(test.test))
    if asked is None or f"setattr({asked[1]}, " not in ast.unparse(test):
        return
    for one in nodes:
        made = one.value if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == asked[1] else None
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id in classes:
            yield _Filled(node, made.func.id, "", True)
            return
