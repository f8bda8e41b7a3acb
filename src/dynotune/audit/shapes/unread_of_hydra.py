"""Keys of a configuration of Hydra's that no script reads, by every chain of attributes that reaches one."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code
from dynotune.audit.place import Place
from dynotune.audit.read.configs.hydra import Composed, composed, primary_of
from dynotune.audit.shapes.chains_of_hydra import CALLS_THAT_SHOW, chains_read, started_by_hydra

Unread = Sequence[tuple[str, Place]]
"""Keys by their whole names."""

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")


def unread_of_hydra(project: Project) -> Iterator[Unread]:
    """Keys that no script reads, with their places; nothing where the configuration goes where it cannot be followed."""
    started = {primary for script in project.scripts if (primary := primary_of(script)) is not None}
    if len(started) != 1 or any("ConfigStore" in script.source for script in project.scripts):
        return
    configs = {config.file: config for config in project.configs}
    found = composed(configs, *started.pop())
    used = chains_read(project.scripts) if found is not None else None
    if found is None:
        return
    if used is None:
        yield from _without_a_word(project, found)
        return
    named = {
        name.lstrip(".").rpartition(".")[2] for text in project.texts.values() for name in _REFERENCE.findall(text)
    }
    unread = []
    for package, config in found.parts:
        for path, place in leaves_of(config):
            parts = (*package.split("."), *path) if package else path
            if path[-1] not in named and not any(_reads(one, parts, found.values) for one in used):
                unread.append((".".join(parts), place))
    quoted = {name for script in project.scripts for name in re.findall(r"[\"'](\w+)[\"']", script.source)}
    unread = [(name, place) for name, place in unread if name.rpartition(".")[2] not in quoted]
    if unread:
        yield unread


_WHOLE = re.compile(
    r"to_container|to_object|instantiate|\bvars\(|asdict|structured|\*\*\s*(self\.)?(cfg|config|conf|args)\b(?!\.)|\.items\(\)|\.keys\(\)"
    r"|getattr\(|OmegaConf\.(select|merge|update)|for \w+ in (self\.)?(cfg|config|conf)\b|(cfg|config|conf)\w*\["
)


def _without_a_word(project: Project, found: Composed) -> Iterator[Unread]:
    """Where the configuration goes through classes and processes: keys in groups whose name stands nowhere in the code."""
    sources = [code(script) for script in project.scripts]
    if any(_WHOLE.search(one) for one in sources) or _goes_out(project.scripts):
        return
    text = "\n".join(sources)
    named = {name.lstrip(".").rpartition(".")[2] for one in project.texts.values() for name in _REFERENCE.findall(one)}
    unread = []
    for package, config in found.parts:
        for path, place in leaves_of(config):
            parts = (*package.split("."), *path) if package else path
            whole = any(re.search(rf"\.{re.escape(part)}\b(?!\s*\.\s*\w)", text) for part in parts[:-1])
            reached = len(parts) > 1 and re.search(rf"\.{re.escape(parts[-2])}\.\w", text)
            if reached and not whole and parts[-1] not in named and not re.search(rf"\b{re.escape(parts[-1])}\b", text):
                unread.append((".".join(parts), place))
    if unread:
        yield unread


_ON = CALLS_THAT_SHOW | {"spawn", "start_processes", "Process", "resolve", "set_struct", "len", "isinstance", "type"}
"""Calls that read no key of a configuration, or hand it on to a function that they are given."""


def _goes_out(scripts: Sequence[Script]) -> bool:
    """The configuration is given whole to what is not the project's own."""
    names = {name for script in scripts for name in _parameters(script)}
    own = {
        node.name
        for script in scripts
        for node in ast.walk(script.tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    for script in scripts:
        for node in ast.walk(script.tree):
            if not isinstance(node, ast.Call):
                continue
            last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [*node.args, *(one.value for one in node.keywords)]
            given += [inner for one in given if isinstance(one, ast.Tuple | ast.List) for inner in one.elts]
            if last not in own | _ON and any(ast.unparse(one).removeprefix("self.") in names for one in given):
                return True
    return False


def leaves_of(config: ConfigFile) -> Iterator[tuple[tuple[str, ...], Place]]:
    pending: list[tuple[tuple[str, ...], Any]] = [
        ((str(key),), value) for key, value in config.values.items() if key not in ("defaults", "hydra")
    ]
    while pending:
        path, value = pending.pop(0)
        if isinstance(value, Mapping) and value:
            pending += [((*path, str(key)), inner) for key, inner in value.items()]
        else:
            yield path, config.places.get(".".join(path), Place(config.file))


def _reads(used: tuple[str, ...], path: tuple[str, ...], values: Mapping[str, Any]) -> bool:
    """Whether a chain of attributes reaches the key, or takes a mapping above it whole."""
    here: Any = values
    for number, part in enumerate(used):
        if not isinstance(here, Mapping):
            return used[:number] == path[:number]  # a method of the value
        if part not in here:
            return used[:number] == path[:number]  # `get`, `items`: the mapping whole
        here = here[part]
    return path[: len(used)] == used


def _parameters(script: Script) -> Iterator[str]:
    """What functions under `@hydra.main` call their configuration."""
    for node in started_by_hydra(script):
        yield node.args.args[0].arg
