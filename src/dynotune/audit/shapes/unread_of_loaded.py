"""Keys, nested ones too, of a file that a script loads by itself (OmegaConf, YAML, TOML), which nothing reads."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, connected
from dynotune.audit.place import Place
from dynotune.audit.shapes.chains_of_hydra import Chain, Holds, chains_read, started_by_hydra
from dynotune.audit.shapes.unread_of_hydra import Unread, leaves_of

_LOADS = re.compile(r"\b(?:yaml\.(?:safe_|full_)?load|tomllib\.loads?|toml\.loads?|OmegaConf\.load)\(")
"""Not JSON's, which reads data as well."""

_HOLDERS = re.compile(r"^(?:OmegaConf\.(?:merge|create|load)|EasyDict|edict|Munch|munchify|DotDict|Box|AttrDict)\b")
_METHODS = frozenset({"items", "keys", "values", "copy", "update", "pop", "setdefault", "toDict", "to_dict", "_asdict"})
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_NOTES = frozenset(
    {"name", "description", "notes", "note", "comment", "version", "tags", "author", "date", "project", "title"}
)
"""Keys for people."""

_Room = ast.FunctionDef | ast.Module


def unread_of_loaded(project: Project) -> Iterator[tuple[str, Unread]]:
    """By file. Nothing where the configuration goes where it cannot be followed, or where its keys' names stand in code."""
    configs = {config.file: config for config in project.configs}
    for script in project.scripts:
        files = {file for launch in project.launches if launch.script == script.file for file in launch.configs}
        files = (files | _named_by(script)) & set(configs)
        if not files or any(configs[file].kind != "unknown" for file in files):
            continue
        program = connected(script, project)
        if any(True for one in program for _ in started_by_hydra(one)):
            continue
        loaders = {name for one in program for name in _loaders(one)}
        held = [one for each in program for one in _held(each, loaders)]
        if not held:
            continue
        used = chains_read(program, held)
        if not used:
            continue
        texts = [text for name, text in project.texts.items() if name not in configs and not name.endswith(".py")]
        text = "\n".join([*texts, *(code(one) for one in project.scripts)])
        named = {part for one in project.texts.values() for name in _REFERENCE.findall(one) for part in name.split(".")}
        for file in sorted(files):
            unread = _unread(configs[file], used, text, named)
            if unread and 2 * len(unread) <= sum(1 for _ in leaves_of(configs[file])):
                yield file, unread


def _named_by(script: Script) -> set[str]:
    """Files that a script of the first folder loads by a name of its own: `OmegaConf.load("conf.yaml")`."""
    if "/" in script.file:
        return set()
    loads = re.finditer(_LOADS.pattern + r"(?:open\(|Path\()*\s*['\"](?:\./)?([\w./-]+)['\"]", code(script))
    return {found[1] for found in loads}


def _unread(config: ConfigFile, used: Sequence[Chain], text: str, named: set[str]) -> list[tuple[str, Place]]:
    return [
        (".".join(path), place)
        for path, place in leaves_of(config)
        if path[-1] not in named | _NOTES
        and path[-1][:1] not in "_."
        and not re.search(rf"\b{re.escape(path[-1])}\b", text)
        and not any(_reads(one, path, config.values) for one in used)
    ]


def _reads(used: Chain, path: Chain, values: Mapping[str, object]) -> bool:
    """Whether a chain reaches the key, or takes a mapping above it whole."""
    here: object = values
    for number, part in enumerate(used):
        if not isinstance(here, Mapping):
            return used[:number] == path[:number]
        if part not in here:
            return part in _METHODS and used[:number] == path[:number]
        here = here[part]
    return path[: len(used)] == used


def _held(script: Script, loaders: set[str]) -> Iterator[Holds]:
    """Names that hold the content of a file, but those that are only merged into another or returned by what loads it."""
    rooms: list[_Room] = [script.tree, *(one for one in ast.walk(script.tree) if isinstance(one, ast.FunctionDef))]
    for room in rooms:
        if isinstance(room, ast.FunctionDef) and room.name in loaders:
            continue
        mine = [node for node in _own(room) if isinstance(node, ast.Assign) and _is_loaded(node.value, loaders)]
        names = {node.targets[0].id for node in mine if isinstance(node.targets[0], ast.Name)}
        merged = [
            node
            for node in _own(room)
            if isinstance(node, ast.Assign)
            and _HOLDERS.match(ast.unparse(node.value))
            and any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(node.value))
        ]
        inner = {one.id for node in merged for one in ast.walk(node.value) if isinstance(one, ast.Name)}
        for name in names | {node.targets[0].id for node in merged if isinstance(node.targets[0], ast.Name)}:
            loads = sum(
                isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Load) for one in ast.walk(room)
            )
            if name not in inner or loads > 1:
                yield Holds(room, name)


def _is_loaded(value: ast.expr, loaders: set[str]) -> bool:
    """A call that loads, alone or in one that only holds it."""
    if not isinstance(value, ast.Call):
        return False
    called = ast.unparse(value.func)
    text = ast.unparse(value)
    if _LOADS.match(text) or called.rpartition(".")[2] in loaders:
        return True
    return bool(_HOLDERS.match(text)) and any(
        isinstance(one, ast.Call) and one is not value and _is_loaded(one, loaders) for one in ast.walk(value)
    )


def _loaders(script: Script) -> Iterator[str]:
    """Functions that load a file and give it back."""
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.FunctionDef) or len(node.body) > 6:
            continue
        returned = [one.value for one in _own(node) if isinstance(one, ast.Return) and one.value is not None]
        held = {
            one.targets[0].id
            for one in _own(node)
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and _is_loaded(one.value, set())
        }
        if len(returned) == 1 and (
            _is_loaded(returned[0], set()) or (isinstance(returned[0], ast.Name) and returned[0].id in held)
        ):
            yield node.name


def _own(room: _Room) -> Iterator[ast.AST]:
    """Nodes of a function or a file, without those of functions in it."""
    pending: list[ast.AST] = list(ast.iter_child_nodes(room))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending += ast.iter_child_nodes(node)
