"""What a configuration's text comes to, whatever its notation, and the error of a text that cannot be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dynotune.audit.place import Place
from dynotune.errors import DynotuneError

ROOT = ""
"""The path of keys of the whole file, in `places`."""


class NotReadableError(DynotuneError):
    """A text that is none of its notation, or more than a configuration can be."""

    def __init__(self, place: Place, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.place, self.why = place, why


@dataclass(frozen=True, slots=True)
class Parsed:
    values: Any
    """Plain values; `Unknown` where a tag would have had to be carried out."""

    places: Mapping[str, Place]
    """By path of keys; `ROOT` is the whole."""

    comments: Mapping[int, str] = field(default_factory=dict)
    repeated: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)
    """Keys that one mapping gives more than once: where, the one that counts last."""


def below(path: str, key: object) -> str:
    """The path of a key in the mapping or list at `path`."""
    return f"{path}.{key}" if path else str(key)
