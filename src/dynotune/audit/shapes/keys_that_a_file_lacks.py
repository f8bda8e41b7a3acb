"""A program reads keys that the configuration of its command has not: it stops there. And words that Hydra refuses."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code
from dynotune.audit.place import Place
from dynotune.audit.read.configs.hydra import Composed, composed, primary_of
from dynotune.audit.shapes.chains_of_hydra import Chain, started_by_hydra

_LOADS = re.compile(r"^(?:yaml\.(?:safe_|full_)?load|json\.load|tomllib\.loads?|toml\.loads?)\(")
_OPENED = re.compile(
    r"set_struct|open_dict|OmegaConf\.(?:update|merge|select|create)|compose\(|hydra\.utils\.call|getattr\("
)
_METHODS = frozenset({"get", "items", "keys", "values", "pop", "copy", "update", "setdefault", "_metadata"})


@dataclass(frozen=True, slots=True)
class Lacking:
    """A key that is read and is not there."""

    key: str
    read: Place
    config: ConfigFile
    near: Sequence[str]
    """Keys beside it."""


def lacking_in_files(launch: Launch, project: Project) -> Iterator[Lacking]:
    """Of a plain mapping that the script loads from the one file which the command names."""
    script = next((one for one in project.scripts if one.file == launch.script), None)
    configs = [
        one for one in project.configs if one.file in launch.configs and one.kind in ("unknown", "transformers", "trl")
    ]
    if script is None or len(configs) != 1 or len(launch.configs) != 1 or any(True for _ in started_by_hydra(script)):
        return
    for name in _loaded(script):
        chains = list(_subscripts(name, script))
        known = {chain[0] for chain, _ in chains} & {str(key) for key in configs[0].values}
        if 2 * len(known) < len({chain[0] for chain, _ in chains}):
            continue  # another file's content under this name
        for chain, node in chains:
            lost = _first_lost(chain, configs[0].values)
            if lost is not None and not _is_asked(lost[0], script.source):
                yield Lacking(lost[0], Place(script.file, node.lineno), configs[0], lost[1])


def lacking_in_hydra(project: Project) -> Iterator[Lacking]:
    """Of the configuration that a function under `@hydra.main` gets."""
    started = {primary for script in project.scripts if (primary := primary_of(script)) is not None}
    sources = [one.source for one in project.scripts]
    if len(started) != 1 or any("ConfigStore" in one or _OPENED.search(one) for one in sources):
        return
    whole = composed({config.file: config for config in project.configs}, *started.pop())
    if whole is None or not whole.parts:
        return
    added = {
        word[1:].partition("=")[0].lstrip("+") for one in (*project.launches, *project.told) for word in one.behind
    }
    for script in project.scripts:
        for function in started_by_hydra(script):
            for chain, node in _attributes(function):
                lost = _first_lost(chain, whole.values)
                if lost is None or lost[0].rpartition(".")[2] in _METHODS or lost[0] in added:
                    continue
                if any(_is_asked(lost[0], one) for one in sources):
                    continue
                yield Lacking(lost[0], Place(script.file, node.lineno), whole.parts[-1][1], lost[1])


def _loaded(script: Script) -> Iterator[str]:
    """Names of the file that hold what was loaded, and nothing else, unchanged."""
    given: dict[str, list[ast.expr]] = {}
    changed: set[str] = set()
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    given.setdefault(target.id, []).append(node.value)
                elif isinstance(target, ast.Subscript):
                    changed.add(ast.unparse(target.value).split("[")[0])
        else:
            func = node.func if isinstance(node, ast.Call) else None
            if isinstance(func, ast.Attribute) and func.attr in ("update", "setdefault", "pop"):
                changed.add(ast.unparse(func.value).split("[")[0])
    for name, values in given.items():
        if len(values) == 1 and name not in changed and _LOADS.match(ast.unparse(values[0])):
            yield name


def _subscripts(name: str, script: Script) -> Iterator[tuple[Chain, ast.expr]]:
    """Whole chains of `name["a"]["b"]` that are read, none of them under `try`."""
    inner = {id(node.value) for node in ast.walk(script.tree) if isinstance(node, ast.Subscript)}
    tried = {id(one) for node in ast.walk(script.tree) if isinstance(node, ast.Try) for one in ast.walk(node)}
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.Subscript) or id(node) in inner | tried or not isinstance(node.ctx, ast.Load):
            continue
        chain: list[str] = []
        here: ast.expr = node
        while (
            isinstance(here, ast.Subscript)
            and isinstance(here.slice, ast.Constant)
            and isinstance(here.slice.value, str)
        ):
            chain.append(here.slice.value)
            here = here.value
        if isinstance(here, ast.Name) and here.id == name and chain:
            yield tuple(reversed(chain)), node


def _attributes(function: ast.FunctionDef) -> Iterator[tuple[Chain, ast.expr]]:
    """Whole chains of `cfg.a.b` that are read in the function itself, none of them under `try` or a condition on them."""
    name = function.args.args[0].arg
    inner = {id(node.value) for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    tried = {id(one) for node in ast.walk(function) if isinstance(node, ast.Try) for one in ast.walk(node)}
    for node in ast.walk(function):
        if not isinstance(node, ast.Attribute) or id(node) in inner | tried or not isinstance(node.ctx, ast.Load):
            continue
        chain: list[str] = []
        here: ast.expr = node
        while isinstance(here, ast.Attribute):
            chain.append(here.attr)
            here = here.value
        if isinstance(here, ast.Name) and here.id == name:
            yield tuple(reversed(chain)), node


def _first_lost(chain: Chain, values: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """The key at which a chain leaves the configuration, by its whole name, and those beside it."""
    here: Any = values
    for number, part in enumerate(chain):
        if not isinstance(here, Mapping) or not here:
            return None
        if part not in here:
            return ".".join(chain[: number + 1]), [str(key) for key in here]
        here = here[part]
    return None


def _is_asked(key: str, source: str) -> bool:
    """The program asks whether it is there, gives another value for it, or sets it."""
    last = re.escape(key.rpartition(".")[2])
    asks = rf"['\"]{last}['\"]\s*(?:not )?in\b|\.get\(\s*['\"]{last}['\"]|hasattr\([^)]*['\"]{last}['\"]"
    return re.search(rf"{asks}|(?:\.{last}|\[['\"]{last}['\"]\])\s*=(?!=)", source) is not None


_OF_HYDRA = frozenset(
    {
        *("h", "help", "hydra_help", "version", "c", "cfg", "resolve", "p", "package", "r", "run", "m", "multirun"),
        *("sc", "shell_completion", "cp", "config_path", "cn", "config_name", "cd", "config_dir", "i", "info"),
        *("experimental_rerun", "local_rank"),
    }
)


def words_that_hydra_refuses(launch: Launch, project: Project) -> Iterator[tuple[str, str]]:
    """A word of the command, and why Hydra stops at it."""
    script = next((one for one in project.scripts if one.file == launch.script), None)
    primary = primary_of(script) if script is not None else None
    if script is None or primary is None or re.search(r"sys\.argv|ArgumentParser", code(script)):
        return
    for name, setting in launch.flags.items():
        if name not in _OF_HYDRA and (setting.place.key or "").startswith("--"):
            yield setting.place.key, "Hydra takes `key=value` and no flags of a program"
    whole = composed({config.file: config for config in project.configs}, *primary)
    for word in launch.behind if whole is not None else ():
        found = re.fullmatch(r"\+([A-Za-z_][\w.]*)=.*", word)
        if found is not None and whole is not None and _has(whole, found[1]):
            yield word, f"`+` adds a key, and the configuration has `{found[1]}`: write it without"


def _has(whole: Composed, name: str) -> bool:
    here: Any = whole.values
    for part in name.split("."):
        if not isinstance(here, Mapping) or part not in here:
            return False
        here = here[part]
    return name not in whole.groups and not isinstance(here, Mapping)
