"""From a name in a script to another file of the project: modules that it imports, configurations that it opens."""

import posixpath
import re
from collections.abc import Mapping
from functools import lru_cache

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.read.configs.hydra import composed
from dynotune.audit.read.python.module import Module
from dynotune.audit.read.python.modules import Modules
from dynotune.audit.read.python.value import Value


def module_of(dotted: str, module: Module, others: Mapping[str, Module]) -> tuple[Module, str] | None:
    """The project's file that a dotted name leads to, and the name in it (empty: the module itself)."""
    if not isinstance(others, Modules):
        return _module_of(dotted, module, others)
    asked = (dotted, module.file, len(others))
    if asked not in others.led:
        others.led[asked] = _module_of(dotted, module, others)
    return others.led[asked]


def _module_of(dotted: str, module: Module, others: Mapping[str, Module]) -> tuple[Module, str] | None:
    folder = posixpath.dirname(module.file)
    dots = len(dotted) - len(dotted.lstrip("."))
    parts = [part for part in dotted.lstrip(".").split(".") if part]
    if dots:
        for _ in range(dots - 1):
            folder = posixpath.dirname(folder)
        starts = [folder]
    else:
        starts = [folder, "", "src"]
        while folder.strip("/"):
            folder = posixpath.dirname(folder)
            starts.append(folder)
    for used in (len(parts), len(parts) - 1):
        if used < 1 and not (dots and parts):
            continue  # `from . import NAME` may be of the package itself
        path = "/".join(parts[:used])
        rest = parts[used:]
        for start in starts:
            for name in (posixpath.join(start, f"{path}.py"), posixpath.join(start, path, "__init__.py")):
                if name in others and name != module.file:
                    return others[name], rest[0] if rest else ""
    return None


_WORD = re.compile(r"(?:[\"']|\.)([A-Za-z_]\w*)\b")
"""What a script may call a key: `cfg["lr"]`, `cfg.lr`."""


def joined(*parts: str) -> str:
    return posixpath.join(*(part.replace("\\", "/") for part in parts))


def config_of(path: str, module: Module, configs: Mapping[str, ConfigFile]) -> ConfigFile | None:
    """The configuration at a path that the script names: from the project's folder, from the script's, or the only one
    whose path ends so."""
    path = posixpath.normpath(path.replace("\\", "/"))
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(module.file), path))
    for name in (path, beside):
        if name in configs:
            return configs[name]
    tail = path.lstrip("./")
    ending = [config for name, config in configs.items() if name == tail or name.endswith(f"/{tail}")]
    return ending[0] if len(ending) == 1 else None


_OF_LAUNCHERS = frozenset({"accelerate", "deepspeed"})
_LEAST_KEYS = 3


def only_one_for(module: Module, configs: Mapping[str, ConfigFile]) -> ConfigFile | None:
    """The configuration that a script is given by a command line that nobody wrote down: the only one of the project of
    which the script names all keys but one or two."""
    named = _words(module)
    fits = [one for one in configs.values() if one.kind not in _OF_LAUNCHERS and _fits(one, named)]
    return fits[0] if len(fits) == 1 else None


def _fits(config: ConfigFile, named: frozenset[str]) -> bool:
    keys = [str(key) for key in config.values] if isinstance(config.values, Mapping) else []
    return len(keys) >= _LEAST_KEYS and sum(key in named for key in keys) >= max(_LEAST_KEYS, len(keys) - 2)


@lru_cache(maxsize=256)
def _words(module: Module) -> frozenset[str]:
    return frozenset(_WORD.findall("\n".join(module.lines)))


def content(config: ConfigFile) -> Value:
    """Of a configuration, each value with its place."""
    return _content(config, config.values, "", 0)


def composition(config: ConfigFile, configs: Mapping[str, ConfigFile]) -> Value:
    """Of Hydra's primary configuration with the groups that its defaults name; alone where these cannot be told."""
    folder, _, name = config.file.rpartition("/")
    whole = composed(configs, folder, name.rpartition(".")[0])
    if whole is None:
        return content(config)
    found: dict[object, Value] = {}
    for package, part in whole.parts:
        inner = content(part)
        for key in reversed(package.split(".") if package else []):
            inner = Value({key: inner}, inner.via, (), inner.place)
        if isinstance(inner.value, dict):
            found = over(found, inner.value)
    return Value(found)


def over(below: dict[object, Value], above: dict[object, Value]) -> dict[object, Value]:
    """Mappings joined, the second counting where both have a value."""
    joint = dict(below)
    for key, value in above.items():
        held = joint.get(key)
        if held is not None and isinstance(held.value, dict) and isinstance(value.value, dict):
            value = Value(over(held.value, value.value), value.via, (), value.place)
        joint[key] = value
    return joint


def _content(config: ConfigFile, value: object, path: str, depth: int) -> Value:
    place = config.places.get(path)
    via = (place,) if place is not None else ()
    if depth < 20 and isinstance(value, Mapping):
        inner = {key: _content(config, item, f"{path}.{key}".lstrip("."), depth + 1) for key, item in value.items()}
        return Value(inner, via, (), place)
    if depth < 20 and isinstance(value, (list, tuple)):
        several = [
            _content(config, item, f"{path}.{number}".lstrip("."), depth + 1) for number, item in enumerate(value)
        ]
        return Value(several, via, (), place)
    return Value(value, via, (), place)
