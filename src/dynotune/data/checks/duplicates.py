"""Rows that stand in the data more than once, found with 44 bytes a row.

Of each row four 64-bit hashes are kept in flat arrays and compared once, at the end. Two different rows of n collide
with a probability of about n^2 / 2^65: 3 in 10^8 for a million rows. A collision costs a wrong notice, never a row.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynotune.data.checks.view import View
from dynotune.data.places import NO_LINE
from dynotune.data.rows import Place, Row

_WITHIN, _BETWEEN = "\x1f", "\x1e"


@dataclass
class RowHashes:
    """The hashes of rows, four a row one after the other (whole row, content, near content, prompt), and their places."""

    hashes: array[int] = field(default_factory=lambda: array("Q"))
    files: dict[str, int] = field(default_factory=dict)
    file_numbers: array[int] = field(default_factory=lambda: array("i"))
    lines: array[int] = field(default_factory=lambda: array("q"))

    def add(self, place: Place, hashes: tuple[int, int, int, int]) -> None:
        self.hashes.extend(hashes)
        self.file_numbers.append(self.files.setdefault(place.file, len(self.files)))
        self.lines.append(NO_LINE if place.line is None else place.line)

    def extend(self, later: RowHashes) -> None:
        """Add rows that follow."""
        self.hashes.extend(later.hashes)
        self.lines.extend(later.lines)
        if len(later.files) == 1:
            (file,) = later.files
            self.file_numbers.extend(array("i", [self.files.setdefault(file, len(self.files))]) * len(later.lines))
            return
        number_of = [self.files.setdefault(file, len(self.files)) for file in later.files]
        self.file_numbers.extend(number_of[number] for number in later.file_numbers)


def row_hashes(row: Row, values: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """What tells equal rows. `values` is the row as read, with its id and all other columns."""
    view = View(row)
    content = _content(view)
    return (
        _hash(_canonical(values)),
        _hash(content),
        _hash(" ".join(content.casefold().split())),
        _hash(_content(view, without_answer=True)) if view.turns else 0,
    )


class Duplicates:
    """Takes the hashes of rows with `add`; `found` names the later rows of every group of equals."""

    def __init__(self) -> None:
        self._rows = RowHashes()

    def add(self, hashes: RowHashes) -> None:
        self._rows.extend(hashes)

    def found(self) -> Iterator[tuple[str, Place]]:
        """(notice, place) for every row that repeats an earlier one, wholly, in content, nearly, or in its prompt.

        The notices exclude each other, from the strictest on; `conflicting-answer` is the same prompt with another
        answer than the first row that has it.
        """
        row, content, near, prompt = np.frombuffer(self._rows.hashes, np.uint64).reshape(-1, 4).T
        same_row, same_content, same_near = (_repeats(hashes) for hashes in (row, content, near))
        asked = prompt != 0
        conflict = asked & (near != near[_first_of_each(prompt)])
        for name, where in (
            ("exact-duplicate", same_row),
            ("duplicate-content", same_content & ~same_row),
            ("near-duplicate", same_near & ~same_content & ~same_row),
            ("conflicting-answer", conflict & ~same_near),
        ):
            for index in np.flatnonzero(where):
                yield name, self._place(int(index))

    def _place(self, index: int) -> Place:
        line = self._rows.lines[index]
        file = list(self._rows.files)[self._rows.file_numbers[index]]
        return Place(file, None if line == NO_LINE else line)


def _first_of_each(hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
    """For every position the first position that holds the same hash."""
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    return first[inverse]


def _repeats(hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    repeated: NDArray[np.bool_] = _first_of_each(hashes) != np.arange(len(hashes))
    return repeated


def _content(view: View, without_answer: bool = False) -> str:
    row = view.row
    if row.text is not None:
        return row.text
    if row.tokens is not None:
        return str(row.tokens.get("input_ids"))
    turns = view.turns[:-1] if without_answer and view.roles[-1] == "assistant" else view.turns
    pieces = [row.kind, *(_BETWEEN + turn["role"] + _WITHIN + (turn.get("content") or "") for turn in turns)]
    pieces += [_canonical(turn["tool_calls"]) for turn in turns if turn.get("tool_calls")]
    if row.tools:
        pieces.append(_canonical(row.tools))
    return "".join(pieces)


def _canonical(value: Any) -> str:
    return json.dumps(value, default=str, skipkeys=True)


def _hash(text: str) -> int:
    # Lone surrogates can come from Python objects; files that hold them were refused before.
    digest = blake2b(text.encode("utf-8", errors="surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")
