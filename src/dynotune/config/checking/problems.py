"""What is wrong with a configuration, worded for its author: key, value, place, what is allowed, what to do."""

import difflib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from dynotune.config.reading.files import ConfigFile, KeyPath
from dynotune.config.secrets import HIDDEN, hidden, is_secret
from dynotune.errors import ConfigError
from dynotune.printable import printable

_LONGEST_SHOWN = 256
"""Bits of a whole number; Python refuses to write the longest out."""

_UNIONS = (typing.Union, types.UnionType)


_LONGEST_PROBLEM = 4_000
"""Characters; the longest that we write ourselves lists every key of a topic."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong; `keys` are the configuration keys it is about."""

    keys: tuple[str, ...]
    text: str
    place: str = ""

    def __str__(self) -> str:
        # A key may be as long as the file.
        return printable(f"{self.place}: {self.text}" if self.place else self.text, _LONGEST_PROBLEM)


@dataclass(frozen=True)
class Origins:
    """Where each key was given: a file with lines, flags of the command line, or a Python call."""

    file: ConfigFile | None = None
    flags: Mapping[str, str] | None = None
    """Key to the flag as it was spelled."""

    given_as: Mapping[str, str] = field(default_factory=dict)
    """Our key to the older name under which it was given."""

    def place(self, *path: str | int) -> str:
        """Where a value stands, in words: `sft.yaml, line 3`, `flag --learning_rate`, or nothing from Python."""
        key = self.given_as.get(str(path[0]), str(path[0]))
        path = (key, *path[1:])
        for flag in (".".join(map(str, path[:2])), key):
            if self.flags is not None and flag in self.flags:
                return f"flag {self.flags[flag]}"
        if self.file is None:
            return ""
        line = next((self.file.lines[found] for found in _shorter(path) if found in self.file.lines), None)
        return f"{self.file.path}, line {line}" if line is not None else str(self.file.path)


def _shorter(path: KeyPath) -> Iterable[KeyPath]:
    return (path[:length] for length in range(len(path), 0, -1))


def shown(value: Any, *, key: str = "") -> str:
    """A value as it may be printed: short, without control characters, and no secrets."""
    if key == "env" and isinstance(value, Mapping):
        value = {str(name).partition("=")[0]: item for name, item in value.items()}
    free = key == "env" or key.endswith("_kwargs")
    if free and value is not None and not isinstance(value, Mapping | bool | int | float):
        # Not the mapping that it should be: `HF_TOKEN=hf_...` names no entry to judge it by.
        return HIDDEN
    value = hidden(key, value)
    if isinstance(value, int) and value.bit_length() > _LONGEST_SHOWN:
        return f"a number of about {int(value.bit_length() * 0.30103):,} digits"
    # As YAML writes them, not as Python does.
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean ...?`, or nothing if no known word is close."""
    close = close_to(word, known)
    return f" Did you mean `{close}`?" if close else ""


def close_to(word: str, known: Iterable[str]) -> str | None:
    """The known word that one may have been meant to be."""
    return next(iter(difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.75)), None)


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raise one `ConfigError` that lists every problem; nothing if there is none."""
    if not problems:
        return
    if len(problems) == 1:
        raise ConfigError(str(problems[0]))
    listed = "\n".join(f"  {number}. {problem}" for number, problem in enumerate(problems, 1))
    raise ConfigError(f"{len(problems)} problems in the configuration:\n{listed}")


def type_problems(errors: Sequence[ErrorDetails], model: type[BaseModel], origins: Origins) -> list[Problem]:
    """Pydantic's errors in our words, one for each value."""
    by_value: dict[str, list[ErrorDetails]] = {}
    for error in errors:
        by_value.setdefault(_follow(tuple(error["loc"]), model)[2], []).append(error)
    return [
        # Several errors of one value are the branches of a union, none of which says what the whole type takes.
        _worded(group[0] if len(group) == 1 else {**group[0], "type": "union"}, model, origins)
        for group in by_value.values()
    ]


def _worded(error: ErrorDetails, model: type[BaseModel], origins: Origins) -> Problem:
    path: KeyPath = tuple(error["loc"])
    _, annotation, dotted = _follow(path, model)
    # An entry of a mapping hides as the mapping would hide it.
    secret = any(is_secret(str(path[0]), str(part)) for part in path[1:])
    key = "hub_token" if secret else str(path[0])
    value = error["input"]
    context = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            from dynotune.config.fates.aliases import DATASET_ALIASES

            word = str(path[-1])
            nested = _nested_model(path, model)
            if word in DATASET_ALIASES:
                say, _, why = DATASET_ALIASES[word].partition("nothing: ")
                text = f"`{dotted}` is not a key of a data set. " + (f"Remove it: {why}." if why else f"Write {say}.")
            else:
                text = f"`{dotted}` is not a key.{did_you_mean(word, nested.model_fields)}"
                text += f" Known here: {', '.join(nested.model_fields)}."
            return Problem((str(path[0]),), text, origins.place(*path))
        case "missing":
            text = f"`{dotted}` is missing."
        case "literal_error":
            allowed = _literals(annotation)
            words = did_you_mean(str(value), [str(one) for one in allowed])
            text = f"`{dotted}: {shown(value, key=key)}` is not one of {_listed(allowed)}.{words}"
        case "greater_than":
            text = f"`{dotted}: {shown(value, key=key)}` must be above {_number(context['gt'])}."
        case "greater_than_equal":
            text = f"`{dotted}: {shown(value, key=key)}` must be {_number(context['ge'])} or more."
        case "less_than":
            text = f"`{dotted}: {shown(value, key=key)}` must be below {_number(context['lt'])}."
        case "less_than_equal":
            text = f"`{dotted}: {shown(value, key=key)}` must be {_number(context['le'])} or less."
        case "finite_number":
            text = f"`{dotted}: {shown(value, key=key)}` must be a finite number."
        case "int_from_float":
            text = f"`{dotted}: {shown(value, key=key)}` must be a whole number."
        case "value_error" | "assertion_error":
            text = f"`{dotted}: {shown(value, key=key)}`: {context.get('error', error['msg'])}"
        case _:
            text = f"`{dotted}: {shown(value, key=key)}` must be {expected(annotation)}."
    return Problem((str(path[0]),), text, origins.place(*path))


def expected(annotation: Any) -> str:
    """What a type takes, in words."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in _UNIONS:
        parts = dict.fromkeys(expected(one) for one in arguments if one is not type(None))
        return " or ".join(parts) + (" or null" if type(None) in arguments else "")
    if origin is typing.Literal:
        return "one of " + _listed(arguments)
    if origin is list:
        return f"a list ({expected(arguments[0])} each)"
    if origin is dict:
        return "a mapping (`{name: value}`)"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a mapping with the keys " + ", ".join(annotation.model_fields)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(annotation, "something else")


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _literals(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) is typing.Literal:
        return list(typing.get_args(annotation))
    return [value for one in typing.get_args(annotation) for value in _literals(one)]


def _nested_model(path: KeyPath, model: type[BaseModel]) -> type[BaseModel]:
    found = model
    for part in path[:-1]:
        declared = found.model_fields.get(str(part))
        inner = _model_in(declared.annotation) if declared is not None else None
        found = inner or found
    return found


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((inner for one in typing.get_args(annotation) if (inner := _model_in(one)) is not None), None)


def _follow(path: KeyPath, model: type[BaseModel]) -> tuple[str, Any, str]:
    """The top key, the type of the nearest field, and the path as a user writes it (`datasets[0].path`)."""
    annotation: Any = None
    current: type[BaseModel] | None = model
    dotted = ""
    for part in path:
        if isinstance(part, int):
            dotted += f"[{part}]"
            annotation = _inside(annotation, list)
            continue
        found = current.model_fields.get(part) if current is not None else None
        if found is not None:
            annotation = found.annotation
            current = _model_in(annotation)
        elif dotted and _is_union_branch(part):
            continue
        else:
            annotation = _inside(annotation, dict)
        dotted += f".{part}" if dotted else part
    return str(path[0]), annotation, dotted


def _inside(annotation: Any, container: type) -> Any:
    """The type of a container's values, where the type has one such container."""
    branches = typing.get_args(annotation) if typing.get_origin(annotation) in _UNIONS else (annotation,)
    return next((typing.get_args(one)[-1] for one in branches if typing.get_origin(one) is container), annotation)


def _is_union_branch(part: str) -> bool:
    # pydantic adds the branch of a union to the path of an error (`lora_target_modules.list[str].0`).
    return "[" in part or part in {"str", "bool", "int", "float"}
