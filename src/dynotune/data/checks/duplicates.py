"""Rows that stand in the data more than once, found with 44 bytes a row.

Of each row four 64-bit hashes are kept in flat arrays and compared once, at the end. Two different rows of n collide
with a probability of about n^2 / 2^65: 3 in 10^8 for a million rows. A collision costs a wrong notice, never a row, so
the hash (XXH3) is a fast one that somebody who wants to can make collide.
"""

from __future__ import annotations

import json
import marshal
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from dynotune.data.checks.view import View
from dynotune.data.places import NO_LINE
from dynotune.data.rows import Place

_WITHIN, _BETWEEN = "\x1f", "\x1e"
_SIDES = b"\x1d"
"""Between a pair's sides."""


@dataclass
class RowHashes:
    """The hashes of rows, four a row one after the other (whole row, content, near content, and the prompt or, of a pair,
    both sides whichever is chosen), and their places."""

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


def row_hashes(view: View, values: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """What tells equal rows. `values` is the row as read, with its id and all other columns."""
    asked, answered = _asked_and_answered(view)
    content = asked + answered
    as_bytes = _encoded(content)
    return (
        xxh3_64_intdigest(_canonical(values)),
        xxh3_64_intdigest(as_bytes),
        xxh3_64_intdigest(_near(content, as_bytes)),
        xxh3_64_intdigest(_encoded(asked)) if view.turns else 0,
    )


def pair_hashes(chosen: View, rejected: View, values: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """What tells equal pairs, and such as prefer the opposite: the last hash is the same whichever side is chosen."""
    contents = ["".join(_asked_and_answered(side)) for side in (chosen, rejected)]
    as_bytes = [_encoded(content) for content in contents]
    near = [_near(content, raw) for content, raw in zip(contents, as_bytes, strict=True)]
    return (
        xxh3_64_intdigest(_canonical(values)),
        xxh3_64_intdigest(_SIDES.join(as_bytes)),
        xxh3_64_intdigest(_SIDES.join(near)),
        xxh3_64_intdigest(_SIDES.join(sorted(near))),
    )


class Duplicates:
    """Takes the hashes of rows with `add`; `found` names the later rows of every group of equals."""

    def __init__(self, *, pairs: bool = False) -> None:
        self._rows = RowHashes()
        self._contrary = "contradicting-pair" if pairs else "conflicting-answer"

    def add(self, hashes: RowHashes) -> None:
        self._rows.extend(hashes)

    def found(self) -> Iterator[tuple[str, Place]]:
        """(notice, place) for every row that repeats an earlier one, wholly, in content, nearly, or in its prompt.

        The notices exclude each other, from the strictest on; `conflicting-answer` is the same prompt with another
        answer than the first row that has it. Of pairs, most prompts have several: there `contradicting-pair` is the same
        two sides, of which the first row that has them prefers the other.
        """
        row, content, near, prompt = np.frombuffer(self._rows.hashes, np.uint64).reshape(-1, 4).T
        same_row, same_content, same_near = (_repeats(hashes) for hashes in (row, content, near))
        asked = prompt != 0
        conflict = asked & (near != near[_first_of_each(prompt)])
        for name, where in (
            ("exact-duplicate", same_row),
            ("duplicate-content", same_content & ~same_row),
            ("near-duplicate", same_near & ~same_content & ~same_row),
            (self._contrary, conflict & ~same_near),
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


def _asked_and_answered(view: View) -> tuple[str, str]:
    """All that a row holds, in two parts: the second is its last turn, where that is an answer."""
    row = view.row
    if row.text is not None:
        return row.text, ""
    if row.tokens is not None:
        return str(row.tokens.get("input_ids")), ""
    pieces = [f"{_BETWEEN}{turn['role']}{_WITHIN}{turn.get('content') or ''}" for turn in view.turns]
    for number, turn in enumerate(view.turns):
        if turn.get("tool_calls"):
            pieces[number] += _WITHIN + _json(turn["tool_calls"])
    answered = pieces.pop() if view.turns and view.roles[-1] == "assistant" else ""
    return row.kind + (_json(row.tools) if row.tools else "") + "".join(pieces), answered


_NEAR = bytes(32 if chr(code).isspace() else ord(chr(code).lower()) for code in range(128)) + bytes(range(128, 256))
"""ASCII as `casefold` has it, and a space for all that `split` splits at; other bytes of UTF-8 as they are."""

_ASCII = bytes(range(128))


def _near(content: str, as_bytes: bytes) -> bytes:
    """`" ".join(content.casefold().split())`, of bytes where no character beyond ASCII has a case or is a space: there
    that is several times as fast."""
    if not content.isascii():
        others = as_bytes.translate(None, _ASCII).decode("utf-8", errors="surrogatepass")
        if others.casefold() != others or others.split() != [others]:
            return _encoded(" ".join(content.casefold().split()))
    # Most spaces stand alone: it is split where two stand together, and what is left of longer runs is at the ends of parts.
    parts = as_bytes.translate(_NEAR).split(b"  ")
    return b" ".join([part for one in parts if (part := one.strip(b" "))])


def _canonical(values: Any) -> bytes:
    """The same bytes for the same values in the same order."""
    try:
        return marshal.dumps(values, 0)  # version 0 knows no references, so how an object is shared cannot matter
    except ValueError:  # values that no file of JSON brings: dates, decimals, other mappings
        return _encoded(_json(values))


def _json(value: Any) -> str:
    return json.dumps(value, default=str, skipkeys=True)


def _encoded(text: str) -> bytes:
    # Lone surrogates can come from Python objects; files that hold them were refused before.
    return text.encode("utf-8", errors="surrogatepass")
