"""A configuration from a file and flags. Flags win."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynotune.config.checking.problems import Origins, Problem
from dynotune.config.reading.files import ConfigFile, read_file
from dynotune.config.reading.flags import Words, from_words
from dynotune.config.sft import SFTConfig


def load_config(path: Path | None, flags: Mapping[str, Any], *, spelled: Mapping[str, str] | None = None) -> SFTConfig:
    """The configuration that a file and flags give, checked; its `env:` is exported first, as in TRL.

    Args:
        path: a YAML or JSON file (`.json`), or None.
        flags: key to value; `Words` come from a command line and are read by the key's type.
        spelled: key to the flag as it was typed, for messages. Default: `--key`.

    Raises:
        ConfigError: with the key, value, file and line or flag, and the remedy of every problem.
    """
    file = read_file(Path(path)) if path is not None else None
    export_env((file.values if file is not None else {}).get("env"), file)
    names = {key: (spelled or {}).get(key, f"--{key}") for key in flags}
    origins = Origins(file, names)
    given = dict(file.values) if file is not None else {}
    problems = []
    for key, value in flags.items():
        try:
            given[key] = from_words(SFTConfig, key, value) if isinstance(value, Words) else value
        except ValueError as error:
            problems.append(Problem((key,), f"{error}.", origins.place(key)))
    config = SFTConfig.from_origins(given, origins, problems)
    export_env(config.env, None)
    return config


def export_env(env: Any, file: ConfigFile | None) -> None:
    """Set environment variables before anything heavy is imported. A malformed `env:` is left to the type check."""
    if not isinstance(env, dict):
        return
    for name, value in env.items():
        if isinstance(value, str | int | float):
            plain = (
                value if isinstance(value, str | bool) or file is None else file.spelled.get(("env", str(name)), value)
            )
            os.environ[str(name)] = str(plain)
