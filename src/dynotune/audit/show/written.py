"""Which files an audit may write: new ones, empty ones, and its own earlier outputs of the same kind. No other is lost."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dynotune.audit.judging.baseline import FORMAT
from dynotune.audit.regular import start_of
from dynotune.errors import ConfigError
from dynotune.printable import printable

_LONGEST = 1 << 16
_MARKS: Mapping[str, bytes] = {
    "json": b'"format": "dynotune audit"',
    "sarif": b'"name": "dynotune audit"',
    "markdown": b"## dynotune audit\n",
    "html": b"<title>dynotune audit</title>",
    "baseline": f'"format": "{FORMAT}"'.encode(),
}
"""By kind, what stands near the beginning of an earlier output."""


def require_ours(targets: Sequence[tuple[str, str, Path]], audited: Iterable[Path]) -> None:
    """targets: flag, kind and file. Raises `ConfigError` for a file that is there and is no earlier output of this kind,
    that is audited by name, or that two flags name."""
    named = {os.path.realpath(path) for path in audited}
    for flag, kind, path in targets:
        real, shown = os.path.realpath(path), printable(str(path))
        if real in named:
            raise ConfigError(f"{flag}: {shown} is audited, or is written twice. Name another file.")
        named.add(real)
        try:
            start = start_of(path, _LONGEST)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigError(
                f"{flag}: {shown} cannot be written over: {error.strerror}. Name another file."
            ) from error
        if start and _MARKS[kind] not in start:
            raise ConfigError(
                f"{flag}: {shown} is there already, and is no {kind} that an audit wrote. Name another file, or move it."
            )
