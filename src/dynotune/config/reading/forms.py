"""The forms that a value may take in a file, on the command line or in Python, brought to the field's own type.

TRL's files and flags say lists as one word, mappings as JSON text, and "no" as YAML's false; users mean what is meant.
Nothing here guesses: a form that has two readings is left to the type check, which refuses it.
"""

import enum
import os
import types
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from dynotune.config.reading.files import ConfigFile, read_flow

_TRUE = {"true", "yes", "on", "t", "y", "1"}
_FALSE = {"false", "no", "off", "f", "n", "0"}
_NONE = {"none", "null"}


class Accepts(typing.NamedTuple):
    """Which kinds of value a field takes."""

    none: bool
    boolean: bool
    number: bool
    text: bool
    list: bool
    mapping: bool
    literals: tuple[Any, ...]


def accepts(annotation: Any) -> Accepts:
    """The kinds of value that a type takes."""
    parts = _branches(annotation)
    origins = [typing.get_origin(part) or part for part in parts]
    literals = tuple(v for part in parts if typing.get_origin(part) is typing.Literal for v in typing.get_args(part))
    return Accepts(
        none=type(None) in parts,
        boolean=bool in origins,
        number=int in origins or float in origins,
        text=str in origins,
        list=list in origins,
        mapping=dict in origins or any(isinstance(o, type) and issubclass(o, BaseModel) for o in origins),
        literals=literals,
    )


def _branches(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [inner for one in typing.get_args(annotation) for inner in _branches(one)]
    return [annotation]


def shaped(value: Any, annotation: Any, *, spelled: str | None = None) -> Any:
    """A value in the form that its field takes.

    Args:
        value: as given.
        annotation: the field's type.
        spelled: the text of an unquoted scalar in a file, for text fields whose value YAML reads as something else.

    Raises:
        ValueError: a boolean was given where a number is meant, or text that begins like JSON is none.
    """
    takes = accepts(annotation)
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, bool) and not takes.boolean:
        return _not_boolean(value, takes, spelled)
    if isinstance(value, int | float) and not isinstance(value, bool) and _only_text(takes):
        return spelled if spelled is not None else str(value)
    if isinstance(value, str):
        value = _from_text(value, takes)
        if not isinstance(value, dict):
            return value
    if value is None and not takes.none and (takes.list or takes.mapping):
        return [] if takes.list and not takes.mapping else {}
    if isinstance(value, tuple) and takes.list:
        return list(value)
    if isinstance(value, Mapping):
        value = dict(value)
    if isinstance(value, dict) and takes.mapping and texts_only(annotation):
        return {str(name): _as_text(item) for name, item in value.items()}
    if isinstance(value, dict) and (inside := _of_words(annotation)) is not None:
        # `{compiled_layers: on}`, which YAML reads as true, and `{compiled_layers: "On"}`.
        return {str(name): shaped(item, inside) for name, item in value.items()}
    return value


def _only_text(takes: Accepts) -> bool:
    return takes.text and not (takes.number or takes.boolean or takes.list or takes.mapping)


def _not_boolean(value: bool, takes: Accepts, spelled: str | None) -> Any:
    for word in ("on",) if value else ("no", "off"):
        if word in takes.literals:
            return word
    if _only_text(takes):
        return spelled if spelled is not None else str(value).lower()
    if not value and takes.none and not takes.literals:
        raise ValueError("it is not true or false; write `null` to leave it unset")
    raise ValueError("it is not true or false")


def _from_text(text: str, takes: Accepts) -> Any:
    word = text.strip().lower()
    if takes.boolean and (not takes.text or word in {"true", "false"}) and word in _TRUE | _FALSE:
        return word in _TRUE
    if word in _NONE and takes.none and word not in takes.literals and not takes.text:
        return None
    if takes.mapping and text.lstrip().startswith("{"):
        return read_flow(text)
    if takes.list and text.lstrip().startswith("["):
        return read_flow(text)
    if (takes.list or takes.mapping) and not takes.text and not text.strip():
        return [] if takes.list else {}
    if takes.list and not takes.text:
        return [text]
    if word in takes.literals and text not in takes.literals:
        return word
    if word in {"true", "false"} and {"on", "no", "off"} & set(takes.literals):
        return _not_boolean(word == "true", takes, None)
    return text


def _as_text(item: Any) -> Any:
    # YAML reads an unquoted number or `yes` in a mapping of texts as something else; TRL takes its `str`.
    return str(item) if isinstance(item, bool | int | float) else item


def as_spelled(value: Any, key: str, file: ConfigFile) -> Any:
    """A mapping of texts with its unquoted numbers as the file spells them (`VERSION: 1.10` is not 1.1)."""
    if not isinstance(value, dict):
        return value
    return {
        name: file.spelled.get((key, str(name)), item)
        if isinstance(item, int | float) and not isinstance(item, bool)
        else item
        for name, item in value.items()
    }


def _of_words(annotation: Any) -> Any:
    """The type of a mapping's values, where those are words from a list; None for other types."""
    pairs = (typing.get_args(part) for part in _branches(annotation) if typing.get_origin(part) is dict)
    return next((pair[1] for pair in pairs if accepts(pair[1]).literals), None)


def texts_only(annotation: Any) -> bool:
    """Whether a field takes a mapping of texts to texts."""
    return any(typing.get_args(part) == (str, str) for part in _branches(annotation))
