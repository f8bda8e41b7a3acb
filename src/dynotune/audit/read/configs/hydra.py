"""What Hydra composes of a primary configuration and its groups, as far as the files of the project tell."""

import ast
import posixpath
import re
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

    choices: set[str] = field(default_factory=set)
    """What the defaults lists leave to choose: `model`, or `model@teacher`."""


class _OpenError(Exception):
    """Something takes part that these files do not tell."""


def primary_of(script: Script) -> tuple[str, str] | None:
    """Folder and name that `@hydra.main(config_path=..., config_name=...)` of a script gives."""
    for node in ast.walk(script.tree) if "hydra" in script.source else ():
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
    placed: str | None = None,
) -> None:
    base = posixpath.join(folder, group, name)
    config = configs.get(f"{base}.yaml") or configs.get(f"{base}.yml")
    if config is None or depth > _DEEPEST:
        raise _OpenError
    package = group.replace("/", ".") if placed is None else placed
    header = next((text for line, text in config.comments.items() if line == 1 and "@package" in text), "")
    if header:
        said = header.replace("@package", "").strip()
        if said == "_global_":
            package = ""
        elif re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", said) and said != "_group_":
            package = said if placed is None else placed
        elif said != "_group_":
            raise _OpenError
    defaults = config.values.get("defaults")
    entries = list(_entries(defaults if isinstance(defaults, list) else []))
    for one in entries:
        if one.overrides:  # of a file's list, over those of the files that it takes in
            chosen.setdefault(one.group, one.option)
    for one in entries:
        if one.overrides:
            continue
        if one.group == "":
            _add(configs, folder, group, one.option, chosen, found, depth + 1, placed)
            continue
        whole = one.group.lstrip("/") if one.group.startswith("/") or not group else posixpath.join(group, one.group)
        named = f"{whole}@{one.package}" if one.package is not None else whole
        found.choices.add(named)
        wanted = chosen.get(named, one.option)
        if wanted:
            inner = ".".join(part for part in (package, one.package) if part) if one.package is not None else None
            _add(configs, folder, whole, wanted, chosen, found, depth + 1, inner)
    own = {str(key): value for key, value in config.values.items() if key not in ("defaults", "hydra")}
    here = found.values
    for part in package.split(".") if package else ():
        inner = here.setdefault(part, {})
        if not isinstance(inner, dict):
            raise _OpenError
        here = inner
    _merge(here, own)
    found.parts.append((package, config))


@dataclass(frozen=True, slots=True)
class _Entry:
    """One of a defaults list. The group is empty for another file of the same folder, the option for none."""

    group: str
    option: str
    package: str | None = None
    """Where its values go, as `group@package` says."""

    overrides: bool = False


def _entries(defaults: Sequence[Any]) -> Iterator[_Entry]:
    for entry in defaults:
        if entry == "_self_":
            continue
        if isinstance(entry, str) and "/" not in entry and "@" not in entry and "${" not in entry:
            yield _Entry("", entry)
        elif isinstance(entry, Mapping) and len(entry) == 1:
            ((kind, option),) = entry.items()
            words = str(kind).split()
            if words[-1].lstrip("/").startswith("hydra/"):
                continue
            name, at, package = words[-1].partition("@")
            plain = set(words[:-1]) <= {"override", "optional"} and not (at and package in ("", "_here_", "_global_"))
            told = option is None or (isinstance(option, str) and option != "???" and "${" not in option)
            if not plain or not told or "optional" in words:
                raise _OpenError
            overrides = "override" in words
            group = words[-1].lstrip("/") if overrides else name
            yield _Entry(group, option or "", package if at and not overrides else None, overrides)
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
