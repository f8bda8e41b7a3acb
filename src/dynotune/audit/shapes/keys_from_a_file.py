"""The keys of a configuration that a call gets by `**cfg["trainer"]`, where the program opens it by a name in its code,
or every command names the same one."""

import ast
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.place import Place
from dynotune.audit.shapes.loaded_by_name import is_file, loading, names_opened


def keys_from_a_file(given: ast.expr, script: Script, project: Project) -> Iterator[tuple[str, Place]]:
    path: list[str] = []
    while isinstance(given, ast.Subscript | ast.Call):
        match given:
            case ast.Subscript(value=inner, slice=ast.Constant(value=str(name))):
                path.insert(0, name)
            case ast.Call(func=ast.Attribute(value=inner, attr="get"), args=[ast.Constant(value=str(name)), *_]):
                path.insert(0, name)
            case _:
                return
        given = inner
    if not isinstance(given, ast.Name):
        return
    config = _loaded(given.id, script, project)
    held: object = config.values if config is not None else None
    for name in path:
        held = held.get(name) if isinstance(held, Mapping) else None
    if config is None or not isinstance(held, Mapping):
        return
    for key in held:
        whole = ".".join([*path, str(key)])
        yield str(key), config.places.get(whole, Place(config.file, key=str(key)))


def _loaded(name: str, script: Script, project: Project) -> ConfigFile | None:
    """The only file that the name is loaded from, and nothing takes keys out of it or adds some."""
    values = [
        node.value
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Assign) and any(isinstance(at, ast.Name) and at.id == name for at in node.targets)
    ]
    changes = any(
        isinstance(node, ast.Attribute)
        and node.attr in ("pop", "update", "setdefault", "clear")
        and isinstance(node.value, ast.Name | ast.Subscript)
        and ast.unparse(node.value).startswith(name)
        for node in ast.walk(script.tree)
    ) or any(isinstance(node, ast.Delete) for node in ast.walk(script.tree))
    call = next((one for one in loading(script) if len(values) == 1 and one is values[0]), None)
    if call is None or changes:
        return None
    paths = names_opened(call, script, project)
    if paths is None:
        started = {one for launch in project.launches if launch.script == script.file for one in launch.configs}
        paths = list(started)
    found = [one for one in project.configs if any(is_file(one.file, path) for path in paths)]
    return found[0] if len(paths) == len(found) == 1 else None
