"""A configuration from a file and flags. Flags win."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, overload

from dynotune.config.checking.problems import Origins, Problem, did_you_mean
from dynotune.config.reading.files import read_file
from dynotune.config.reading.flags import Words, from_words
from dynotune.config.sft import SFTConfig
from dynotune.config.variables import export_env
from dynotune.config.whole import WholeConfig

Config = TypeVar("Config", bound=WholeConfig)

ONE_SPEEDUP = "speedups."
"""A flag for one speed-up is this with its name: `speedups.packed_execution`."""


def _speedup(given: Mapping[str, Any], flag: str, setting: Any) -> dict[str, Any]:
    """`speedups` with one more setting; what the file says of others stays."""
    from dynotune.speedups.registry import speedups

    name, known = flag.removeprefix(ONE_SPEEDUP), speedups()
    if name not in known:
        raise ValueError(f"`{flag}`: there is no speed-up `{name}`.{did_you_mean(name, known)}".rstrip("."))
    others = given.get("speedups")
    if others is not None and not isinstance(others, Mapping):
        return {}  # the error is the file's
    return {"speedups": {**(others or {}), name: setting}}


@overload
def load_config(
    path: Path | str | None, flags: Mapping[str, Any] = ..., *, spelled: Mapping[str, str] | None = ...
) -> SFTConfig: ...


@overload
def load_config(
    path: Path | str | None,
    flags: Mapping[str, Any] = ...,
    *,
    spelled: Mapping[str, str] | None = ...,
    into: type[Config],
) -> Config: ...


def load_config(
    path: Path | str | None,
    flags: Mapping[str, Any] = MappingProxyType({}),
    *,
    spelled: Mapping[str, str] | None = None,
    into: type[Any] = SFTConfig,
) -> Any:
    """The configuration that a file and flags give, checked; then its `env:` is exported.

    Args:
        path: a YAML or JSON file (`.json`), or None.
        flags: key to value; `Words` come from a command line and are read by the key's type.
        spelled: key to the flag as it was typed, for messages. Default: `--key`.
        into: the configuration that is read: `SFTConfig` or `DPOConfig`.

    Raises:
        ConfigError: with the key, value, file and line or flag, and the remedy of every problem.
    """
    file = read_file(Path(path)) if path is not None else None
    names = {key: (spelled or {}).get(key, f"--{key}") for key in flags}
    origins = Origins(file, names)
    given = dict(file.values) if file is not None else {}
    problems = []
    for key, value in flags.items():
        try:
            read = from_words(into, key, value) if isinstance(value, Words) else value
            given.update(_speedup(given, key, read) if key.startswith(ONE_SPEEDUP) else {key: read})
        except ValueError as error:
            problems.append(Problem((key,), f"{error}.", origins.place(key)))
    config = into.from_origins(given, origins, problems)
    export_env(config.env)
    return config
