"""What Hydra composes of a primary configuration and its groups, as far as the files of the project tell."""

import ast
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.script import Script

_DEEPEST = 8


@dataclass
class Composed:
    """Nested values of all files, and what stays open."""

    values: dict[str, Any] = field(default_factory=dict)
    parts: list[tuple[str, ConfigFile]] = field(default_factory=list)
    """Packages (`model`, empty for the whole) and what is merged there, in order."""

    groups: set[str] = field(default_factory=set)
    """Folders of options: `model`, or `model/head`."""


class _OpenError(Exception):
    """Something takes part that these files do not tell."""


def primary_of(script: Script) -> tuple[str, str] | None:
    """Folder and name that `@hydra.main(config_path=..., config_name=...)` of a script gives."""
    for node in ast.walk(script.tree):
        for call in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if not isinstance(call, ast.Call) or ast.unparse(call.func) not in ("hydra.main", "main"):
                continue
            if script.imports.get(ast.unparse(call.func).partition(".")[0], "") not in ("hydra", "hydra.main"):
                continue
            given = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
            path, name = given.get("config_path"), given.get("config_name")
            if isinstance(path, str) and isinstance(name, str) and "://" not in path:
                folder = posixpath.normpath(posixpath.join(posixpath.dirname(script.file), path))
                return folder, name.removesuffix(".yaml")
    return None


def composed(
    configs: Mapping[str, ConfigFile], folder: str, name: str, chosen: Mapping[str, str] | None = None
) -> Composed | None:
    """The configuration with `chosen` options of groups in place of the defaults'. None: something in it is not told.

    Hydra's own group (`hydra/launcher`) is left out: nobody's settings are in it.
    """
    found = Composed(groups=_groups(configs, folder))
    try:
        _add(configs, folder, "", name, dict(chosen or {}), found, 0)
    except _OpenError:
        return None
    return found


def _groups(configs: Mapping[str, ConfigFile], folder: str) -> set[str]:
    below = [file[len(folder) + 1 :] for file in configs if file.startswith(f"{folder}/")]
    return {posixpath.dirname(file) for file in below if posixpath.dirname(file)}


def _add(
    configs: Mapping[str, ConfigFile],
    folder: str,
    group: str,
    name: str,
    chosen: dict[str, str],
    found: Composed,
    depth: int,
) -> None:
    base = posixpath.join(folder, group, name)
    config = configs.get(f"{base}.yaml") or configs.get(f"{base}.yml")
    if config is None or depth > _DEEPEST:
        raise _OpenError
    package = group.replace("/", ".")
    header = next((text for line, text in config.comments.items() if line == 1 and "@package" in text), "")
    if header:
        if header.replace("@package", "").strip() != "_global_":
            raise _OpenError
        package = ""
    defaults = config.values.get("defaults")
    for kind, option in _entries(defaults if isinstance(defaults, list) else []):
        if kind == "":
            _add(configs, folder, group, option, chosen, found, depth + 1)
            continue
        whole = posixpath.join(group, kind) if group else kind
        wanted = chosen.get(whole, option)
        if wanted:
            _add(configs, folder, whole, wanted, chosen, found, depth + 1)
    own = {str(key): value for key, value in config.values.items() if key not in ("defaults", "hydra")}
    here = found.values
    for part in package.split(".") if package else ():
        inner = here.setdefault(part, {})
        if not isinstance(inner, dict):
            raise _OpenError
        here = inner
    _merge(here, own)
    found.parts.append((package, config))


def _entries(defaults: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Group and option; the group is empty for another file of the same folder, the option for none."""
    for entry in defaults:
        if entry == "_self_":
            continue
        if isinstance(entry, str) and "/" not in entry and "@" not in entry and "${" not in entry:
            yield "", entry
        elif isinstance(entry, Mapping) and len(entry) == 1:
            ((kind, option),) = entry.items()
            words = str(kind).split()
            if words[-1].lstrip("/").startswith("hydra/"):
                continue
            plain = len(words) == 1 and "@" not in words[0] and not words[0].startswith("/")
            if not plain or not (
                option is None or (isinstance(option, str) and option != "???" and "${" not in option)
            ):
                raise _OpenError
            yield words[0], option or ""
        else:
            raise _OpenError


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        held = into.get(str(key))
        if isinstance(value, Mapping) and isinstance(held, dict):
            _merge(held, value)
        elif isinstance(value, Mapping):
            into[str(key)] = {}
            _merge(into[str(key)], value)
        else:
            into[str(key)] = value
