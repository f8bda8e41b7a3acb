"""What becomes of one field of TRL or transformers: honoured, mapped to a speed-up, superseded or refused."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """The four fates. Every field has exactly one."""

    HONOURED = "honoured"
    MAPPED = "mapped to a speed-up"
    SUPERSEDED = "superseded"
    REFUSED = "refused"


@dataclass(frozen=True)
class Fate:
    """The fate of one field.

    A value that changes nothing (`is_noop`) is accepted without a word, whatever the fate. Any other value of a
    superseded field is accepted and said once; of a refused field it is an error. A mapped field is a key of ours: its
    value is read by the speed-ups that it asks for.
    """

    kind: Kind
    reason: str = ""
    """For users: why. Of an honoured field: why the default differs from TRL's, or what to know; may be empty."""

    instead: str = ""
    """For users: what to write or do instead."""

    default: Any = None
    """TRL's default. Of honoured fields the default stands in our own configuration, and this is unused."""

    silent: tuple[Any, ...] | None = None
    """Values that change nothing here. Unset: the default and every empty value."""

    noop: Callable[[Any], bool] | None = None
    """For values that a list cannot name."""

    refuses: Mapping[Any, str] = field(default_factory=dict)
    """Values of a superseded field that are refused all the same, with the reason."""

    key: str | None = None
    """Our name of an honoured field, where it differs."""

    value: Callable[[Any], Any] | None = None
    """Our value from theirs, where those differ; None is "unset". Raises ValueError with the reason and the remedy."""

    yields: bool = False
    """Another name of the same key wins over this one without a word, as with the launcher that has it."""

    speedups: tuple[str, ...] = ()
    """The speed-ups that a mapped field asks for. Of an honoured one: those that its values may ask for, too."""

    def is_noop(self, value: Any) -> bool:
        """Whether this value asks for nothing that differs from what Dynotune does anyway."""
        if self.noop is not None and self.noop(value):
            return True
        if self.silent is not None:
            return any(same(value, quiet) for quiet in self.silent)
        return same(value, self.default) or is_empty(value)


def is_empty(value: Any) -> bool:
    """None, False, empty text, an empty list or an empty mapping: the ways of a YAML file to say "nothing"."""
    if isinstance(value, str) and value.strip().lower() in {"none", "null"}:
        return True
    return value is None or value is False or (isinstance(value, str | list | tuple | dict) and not value)


def same(value: Any, other: Any) -> bool:
    """Equality that keeps booleans and numbers apart (`True == 1` in Python) and reads text as a flag gives it."""
    if isinstance(value, str) and other is not None and not isinstance(other, str):
        return value.strip().lower() == str(other).lower()
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    return bool(value == other)


def honoured(
    reason: str = "",
    *,
    key: str | None = None,
    value: Callable[[Any], Any] | None = None,
    yields: bool = False,
    speedups: tuple[str, ...] = (),
) -> Fate:
    """A field that does here what it does in TRL."""
    return Fate(Kind.HONOURED, reason, key=key, value=value, yields=yields, speedups=speedups)


def superseded(
    reason: str,
    *,
    default: Any = None,
    silent: tuple[Any, ...] | None = None,
    noop: Callable[[Any], bool] | None = None,
    refuses: Mapping[Any, str] | None = None,
) -> Fate:
    """A field that is accepted and not needed."""
    return Fate(Kind.SUPERSEDED, reason, default=default, silent=silent, noop=noop, refuses=refuses or {})


def mapped(reason: str, *speedups: str, default: Any = None) -> Fate:
    """A field that asks for speed-ups by another name: a key of ours, which they read (`Speedup.asked`).

    reason: for users, what the field asks for.
    """
    return Fate(Kind.MAPPED, reason, default=default, speedups=speedups)


def refused(
    reason: str,
    instead: str,
    *,
    default: Any = None,
    silent: tuple[Any, ...] | None = None,
    noop: Callable[[Any], bool] | None = None,
) -> Fate:
    """A field that cannot be carried out."""
    return Fate(Kind.REFUSED, reason, instead, default=default, silent=silent, noop=noop)
