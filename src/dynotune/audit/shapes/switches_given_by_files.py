"""A launcher in Python makes a flag with a value of each key of a file, and one of them is a switch of the program's."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.accepts import accepts
from dynotune.audit.schema import Schemas
from dynotune.audit.shapes.values_that_a_parser_refuses import Refused, options_of


def switches_given_by_files(project: Project) -> Iterator[tuple[Refused, str]]:
    """With the program whose switch it is."""
    scripts = {script.file: script for script in project.scripts}
    for starter in project.scripts:
        line = next((at for loop in ast.walk(starter.tree) if (at := _pairs(loop))), 0)
        started = [one for one in project.scripts if one is not starter and _names(starter, one)] if line else []
        taken = accepts(started[0], scripts, Schemas.of()) if len(started) == 1 else None
        if taken is None:
            continue
        switches = {name.lstrip("-") for one in options_of(taken.adds) if one.places == 0 for name in one.names}
        for config in project.configs:
            name = config.file.rpartition("/")[2]
            if name not in starter.source:
                continue
            for path, key, value in _entries(config.values, ()):
                if isinstance(value, bool) and key in switches:
                    there = config.places.get(".".join((*path, key)), Place(config.file, key=key))
                    why = f"is a switch and takes no value, and `{starter.file}` writes `{value}` of `{name}` behind it"
                    yield Refused(f"--{key}", why, (Place(starter.file, line), there)), started[0].file


def _names(starter: Script, script: Script) -> bool:
    name = re.escape(script.file.rpartition("/")[2])
    return re.search(rf"[\"'/\s]{name}[\"'\s]", starter.source) is not None


def _entries(values: Mapping[Any, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, object]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and len(path) < 3:
            yield from _entries(value, (*path, str(key)))
        else:
            yield path, str(key), value


def _pairs(loop: ast.AST) -> int:
    """The line of a loop that adds `--key` and the value as text, whatever the value is; 0: it is none."""
    match loop:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=key), ast.Name(id=value)]),
            iter=ast.Call(func=ast.Attribute(attr="items")),
            body=body,
        ):
            if any(isinstance(one, ast.If | ast.IfExp | ast.Match) for part in body for one in ast.walk(part)):
                return 0
            for node in (one for part in body for one in ast.walk(part)):
                if isinstance(node, ast.List | ast.Tuple) and len(node.elts) == 2 and _is_pair(node.elts, key, value):
                    return node.lineno
    return 0


def _is_pair(parts: list[ast.expr], key: str, value: str) -> bool:
    flag, word = (ast.unparse(one) for one in parts)
    written = {f"str({value})", f"f'{{{value}}}'", f"'%s' % {value}", value}
    return flag in (f"f'--{{{key}}}'", f"'--' + {key}", f"'--%s' % {key}") and word in written
