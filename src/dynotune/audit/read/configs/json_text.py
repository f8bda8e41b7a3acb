"""JSON with the place of every key."""

import json
import re
from typing import Any

from dynotune.audit.place import Place
from dynotune.audit.read.configs.parsed import ROOT, NotReadableError, Parsed, below
from dynotune.config.reading.files import MAX_DEPTH, MAX_DIGITS, MAX_VALUES

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)


def read_json(file: str, text: str) -> Parsed:
    """Raises `NotReadableError` for text that is no JSON, or more than a configuration can be."""
    try:
        values = json.loads(text.removeprefix("\ufeff"), parse_int=_whole)
    except json.JSONDecodeError as error:
        place = Place(file, error.lineno, error.colno)
        raise NotReadableError(place, f"it is no valid JSON: {error.msg}") from None
    except RecursionError:
        raise NotReadableError(Place(file), f"it nests deeper than {MAX_DEPTH} levels") from None
    if not isinstance(values, dict):
        return Parsed(values, {ROOT: Place(file, 1, 1)})
    return Parsed(values, *_places(file, text))


def _whole(digits: str) -> Any:
    return int(digits) if len(digits) <= MAX_DIGITS else digits


def _places(file: str, text: str) -> tuple[dict[str, Place], dict[int, str], dict[str, tuple[Place, ...]]]:
    """Of valid JSON: its tokens in order, with the path of what is open."""
    line_starts = [0, *(found.end() for found in re.finditer("\n", text))]
    places: dict[str, Place] = {}
    repeated: dict[str, tuple[Place, ...]] = {}
    open_: list[tuple[str, int | None]] = []
    key, expects_key, line, start, ends = "", False, 0, (0, 0), (0, 0)
    for token in _TOKEN.finditer(text):
        while line + 1 < len(line_starts) and line_starts[line + 1] <= token.start():
            line += 1
        column = token.start() - line_starts[line] + 1
        ends = (line + 1, column + len(token[0]))
        mark = token[0]
        if mark in "{[":
            path = _at(open_, key)
            open_.append((path, None if mark == "{" else 0))
            expects_key = mark == "{"
            if len(open_) > MAX_DEPTH or len(places) > MAX_VALUES:
                place = Place(file, line + 1)
                raise NotReadableError(place, f"it holds more than {MAX_DEPTH} levels or {MAX_VALUES:,} values")
            if mark == "[" or len(open_) == 1:
                places.setdefault(path, Place(file, line + 1, column, *ends, path))
        elif mark in "}]":
            path, _ = open_.pop()
            if path in places:
                began = places[path]
                places[path] = Place(file, began.line, began.column, *ends, path)
            expects_key = False
        elif mark == ",":
            path, index = open_[-1]
            expects_key = index is None
            if index is not None:
                open_[-1] = (path, index + 1)
        elif mark == ":":
            expects_key = False
        elif expects_key:
            key, start = json.loads(mark), (line + 1, column)
            path = below(open_[-1][0], key)
            place = Place(file, *start, *ends, path)
            if path in places:
                repeated[path] = (*repeated.get(path, (places[path],)), place)
            places[path] = place
        else:
            path = _at(open_, key)
            began = places.get(path, Place(file, line + 1, column))
            places[path] = Place(file, began.line, began.column, *ends, path)
    return places, {}, repeated


def _at(open_: list[tuple[str, int | None]], key: str) -> str:
    if not open_:
        return ROOT
    path, index = open_[-1]
    return below(path, key if index is None else index)
