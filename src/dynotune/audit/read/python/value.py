"""What an expression comes to, with the trail and what else it may be."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dynotune.audit.facts.setting import Known, Setting, Unknown
from dynotune.audit.place import Place


@dataclass(frozen=True, slots=True)
class Value:
    value: Any
    """Plain, `Made`, a `dict` or `list` of `Value`, or `Unknown`."""

    via: tuple[Place, ...] = ()
    """Where it comes from, nearest first; empty: it stands there literally."""

    others: tuple[Any, ...] = ()

    place: Place | None = None
    """Of an argument or an item: where that stands."""

    @property
    def is_known(self) -> bool:
        return not isinstance(self.value, Unknown)

    def through(self, place: Place) -> "Value":
        return self if place in self.via else replace(self, via=(place, *self.via))


@dataclass(frozen=True, slots=True)
class Made:
    """What a constructor or a loading function gave: its qualified name and what it got."""

    name: str
    arguments: Mapping[str, Value]
    place: Place
    attributes: Mapping[str, Value] = field(default_factory=dict)
    """Of objects whose class is read too (dataclasses, parsed arguments)."""

    element: int | None = None
    """Which element, where it gave several."""

    open: str = ""
    """Where attributes that are not listed come from, as the end of a sentence; empty: there are none."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a library's configuration class takes, as a script asks the class for them (`dataclasses.fields`,
    `inspect.signature`). Which they are, the trainer's version says: `Modules.takes`."""

    of: str
    """Qualified name of the class."""

    more: frozenset[str] = frozenset()
    less: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ClassOf:
    """A library's configuration class itself, which a script hands on (`build(SFTConfig, raw)`)."""

    name: str


LEFT_OUT = "~"
"""Before the key of an item that a filter by a class's `Names` has left out of a dictionary: it is not in there, and
somebody may have meant it to be."""

HOLE = "**"
"""The key that stands for items of a dictionary which could not be told."""


def unknown(why: str, *via: Place, others: Iterable[Any] = ()) -> Value:
    return Value(Unknown(why), via, tuple(others))


def plain(value: Any, depth: int = 0) -> Any:
    """A value as a rule sees it: plain through and through, or `Unknown`."""
    if depth > 20:
        return Unknown("it is nested too deeply")
    if isinstance(value, Value):
        return plain(value.value, depth + 1)
    if isinstance(value, Made):
        return Unknown(f"it is made by `{value.name}`")
    if isinstance(value, (Names, ClassOf)):
        return Unknown("it is a class or what it takes")
    if isinstance(value, dict):
        # A part that is not known stays a part: the rest of a dictionary is worth having.
        return {key: plain(item, depth + 1) for key, item in value.items() if not left_out(key)}
    if isinstance(value, list):
        return [plain(item, depth + 1) for item in value]
    return value


def left_out(key: object) -> bool:
    return isinstance(key, str) and key.startswith(LEFT_OUT)


def setting(name: str, value: Value, place: Place, *, given_as: str = "", given_value: Any = None) -> Setting:
    others = tuple(other for other in (plain(other) for other in value.others) if not isinstance(other, Unknown))
    return Setting(
        name,
        plain(value.value),
        value.place or place,
        Known.FOLLOWED if value.via else Known.GIVEN,
        given_as=given_as if given_as != name else "",
        given_value=given_value,
        via=value.via,
        others=others,
    )
