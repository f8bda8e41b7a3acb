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

Unread = Sequence[tuple[str, Place]]
"""Keys by their whole names."""

CALLS_THAT_SHOW = frozenset({"to_yaml", "print", "pprint", "save", "info"})
"""Calls that show or keep a configuration, and do nothing by it."""

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")


def unread_of_hydra(project: Project) -> Iterator[Unread]:
    """Keys that no script reads, with their places; nothing where the configuration goes where it cannot be followed."""
    started = {primary for script in project.scripts if (primary := primary_of(script)) is not None}
    if len(started) != 1 or any("ConfigStore" in script.source for script in project.scripts):
        return
    configs = {config.file: config for config in project.configs}
    found = composed(configs, *started.pop())
    used = _used(project.scripts) if found is not None else None
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
        for path, place in _leaves(config):
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
        for path, place in _leaves(config):
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


def _leaves(config: ConfigFile) -> Iterator[tuple[tuple[str, ...], Place]]:
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


def _used(scripts: Sequence[Script]) -> list[tuple[str, ...]] | None:
    """Every chain of attributes of the configuration; None: it goes where it cannot be followed."""
    names = {name for script in scripts for name in _parameters(script)}
    takes = _functions(scripts, names)
    found: list[tuple[str, ...]] = []
    for script in scripts:
        above = {child: node for node in ast.walk(script.tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(script.tree):
            if not isinstance(node, ast.Name) or node.id not in names:
                continue
            chain, here = _chain(node, above)
            short = _short_name(here, above, script) if chain else ""
            if short:
                found += [(*chain, *further) for further in _chains_of(short, script, above)]
            elif chain:
                found.append(chain)
            elif not _passed_on(node, above, takes):
                return None
    return found


def _chain(node: ast.Name, above: Mapping[ast.AST, ast.AST]) -> tuple[tuple[str, ...], ast.AST]:
    """The attributes behind a name, and the whole expression."""
    chain: list[str] = []
    here: ast.AST = node
    while isinstance(parent := above[here], ast.Attribute):
        chain.append(parent.attr)
        here = parent
    return tuple(chain), here


def _short_name(here: ast.AST, above: Mapping[ast.AST, ast.AST], script: Script) -> str:
    """`t` of `t = cfg.trainer`, where that is all that the file gives it and each use of it takes an attribute."""
    given = above[here]
    if not isinstance(given, ast.Assign) or given.value is not here or len(given.targets) != 1:
        return ""
    target = given.targets[0]
    if not isinstance(target, ast.Name):
        return ""
    uses = [node for node in ast.walk(script.tree) if isinstance(node, ast.Name) and node.id == target.id]
    arguments = [node for node in ast.walk(script.tree) if isinstance(node, ast.arg) and node.arg == target.id]
    alone = sum(isinstance(node.ctx, ast.Store) for node in uses) == 1 and not arguments
    taken = all(isinstance(above[node], ast.Attribute) for node in uses if isinstance(node.ctx, ast.Load))
    return target.id if alone and taken else ""


def _chains_of(short: str, script: Script, above: Mapping[ast.AST, ast.AST]) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Name) and node.id == short and isinstance(node.ctx, ast.Load):
            yield _chain(node, above)[0]


def _parameters(script: Script) -> Iterator[str]:
    """What functions under `@hydra.main` call their configuration."""
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.FunctionDef) or not node.args.args:
            continue
        if any("hydra.main" in ast.unparse(one) for one in node.decorator_list):
            yield node.args.args[0].arg


def _functions(scripts: Sequence[Script], names: set[str]) -> set[str]:
    """Functions of the project that take a configuration under one of its names, each defined once."""
    defined: dict[str, list[ast.FunctionDef]] = {}
    for script in scripts:
        for node in ast.walk(script.tree):
            if isinstance(node, ast.FunctionDef):
                defined.setdefault(node.name, []).append(node)
    return {
        name
        for name, nodes in defined.items()
        if len(nodes) == 1 and names & {argument.arg for argument in nodes[0].args.args}
    }


def _passed_on(node: ast.Name, above: Mapping[ast.AST, ast.AST], takes: set[str]) -> bool:
    """To a function that has it under the same name, or to one that only shows it."""
    parent = above[node]
    call = above[parent] if isinstance(parent, ast.keyword) else parent
    if (
        not isinstance(call, ast.Call)
        or node is call.func
        or (isinstance(parent, ast.keyword) and parent.arg != node.id)
    ):
        return False
    last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return last in takes or last in CALLS_THAT_SHOW
