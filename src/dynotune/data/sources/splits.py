"""Splits: which files belong to which, and which part of one is asked for (`train[:1000]`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TypeVar

from dynotune.errors import DataError
from dynotune.printable import printable

_KEYWORDS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
}
"""Words in a file's or folder's name that say which split it is (those that the hub goes by)."""

_WORD = re.compile(r"[A-Za-z]+")
_SLICE = re.compile(r"(?P<split>[^\[\]]+)(?:\[(?P<start>-?\d+%?)?:(?P<stop>-?\d+%?)?\])?")

T = TypeVar("T")


def group_by_split(files: Iterable[Path], folder: Path | None = None) -> tuple[dict[str, list[Path]], list[Path]]:
    """Files by the split that their name (or a folder's between `folder` and them) says, and those that say none."""
    grouped: dict[str, list[Path]] = {}
    nameless: list[Path] = []
    for file in files:
        parts = file.relative_to(folder).parts if folder is not None else (file.name,)
        # The file's own name is the most specific, so it is asked first.
        named = [
            _KEYWORDS[w.lower()] for part in reversed(parts) for w in _WORD.findall(part) if w.lower() in _KEYWORDS
        ]
        if named:
            grouped.setdefault(named[0], []).append(file)
        else:
            nameless.append(file)
    return grouped, nameless


def choose_split(splits: Mapping[str, T], asked: str, name: str, key: str) -> tuple[T, str | None]:
    """The split that `asked` names, and its slice (`[:10%]`) or None. `key` is the configuration key, for errors."""
    parsed = _SLICE.fullmatch(asked.strip())
    if parsed is None:
        raise DataError(
            f"{printable(name)}: {key}: {printable(asked)} is not understood. Give a split's name, with a slice at most "
            "(train, train[:1000], train[10%:20%]). To join splits, list them under `datasets`."
        )
    split = parsed["split"]
    if split not in splits:
        raise DataError(
            f"{printable(name)}: there is no split '{printable(split)}' (asked for by {key}). "
            f"It has: {printable(', '.join(splits))}."
        )
    bounds = asked.strip()[len(split) :]
    return splits[split], bounds or None


def slice_rows(rows: Iterable[T], bounds: str | None, count: Callable[[], int]) -> Iterable[T]:
    """The rows within `bounds` (`[a:b]`, percentages and negative numbers as in `datasets`). `count` is called only
    where the number of rows matters."""
    if bounds is None:
        return rows
    parsed = _SLICE.fullmatch(f"x{bounds}")
    assert parsed is not None
    ends = [parsed["start"], parsed["stop"]]
    total = count() if any(end and ("%" in end or end.startswith("-")) for end in ends) else 0
    start, stop = (_position(end, total) for end in ends)
    return islice(rows, start or 0, stop)


def _position(end: str | None, total: int) -> int | None:
    if end is None:
        return None
    value = round(int(end[:-1]) * total / 100) if end.endswith("%") else int(end)
    return max(total + value, 0) if end.startswith("-") else value
