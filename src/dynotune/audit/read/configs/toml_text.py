"""TOML with the line of every plain key."""

import re
import tomllib
from typing import Any

from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place
from dynotune.audit.read.configs.parsed import ROOT, NotReadableError, Parsed, below
from dynotune.config.reading.files import MAX_DEPTH, MAX_VALUES

_SECTION = re.compile(r"^\s*\[\[?\s*([A-Za-z0-9_.\-]+)\s*\]\]?")
_KEY = re.compile(r"^(\s*)([A-Za-z0-9_.\-]+)\s*=")
_AT = re.compile(r"\(at line (\d+), column (\d+)\)")
_STRING_OR_COMMENT = re.compile(
    r"\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}.*?'{3}|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|#(?P<comment>[^\n]*)", re.DOTALL
)


def read_toml(file: str, text: str) -> Parsed:
    """Raises `NotReadableError` for text that is no TOML, or more than a configuration can be."""
    try:
        values = _plain(tomllib.loads(text), 0, [0], file)
    except tomllib.TOMLDecodeError as error:
        at = _AT.search(str(error))
        place = Place(file, int(at[1]), int(at[2])) if at else Place(file)
        raise NotReadableError(place, f"it is no valid TOML: {_AT.sub('', str(error)).strip()}") from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, NotReadableError):
            raise
        raise NotReadableError(Place(file), "it cannot be read as TOML") from None
    places, section = {ROOT: Place(file, 1, 1)}, ""
    comments = _comments(text)
    for number, line in enumerate(lines_of(text), 1):
        if header := _SECTION.match(line):
            section = header[1]
            places.setdefault(section, Place(file, number, 1, number, len(line) + 1, section))
        elif key := _KEY.match(line):
            path = below(section, key[2])
            places.setdefault(path, Place(file, number, len(key[1]) + 1, number, len(line) + 1, path))
    return Parsed(values, places, comments)


def _comments(text: str) -> dict[int, str]:
    """By line: what stands behind a `#` outside of strings, which may go over several lines."""
    return {
        text.count("\n", 0, found.start()) + 1: found["comment"].strip()
        for found in _STRING_OR_COMMENT.finditer(text)
        if found["comment"] is not None
    }


def _plain(value: Any, depth: int, count: list[int], file: str) -> Any:
    count[0] += 1
    if depth > MAX_DEPTH or count[0] > MAX_VALUES:
        raise NotReadableError(Place(file), f"it holds more than {MAX_DEPTH} levels or {MAX_VALUES:,} values")
    if isinstance(value, dict):
        return {key: _plain(child, depth + 1, count, file) for key, child in value.items()}
    if isinstance(value, list):
        return [_plain(child, depth + 1, count, file) for child in value]
    return value if isinstance(value, str | int | float | bool) else str(value)
