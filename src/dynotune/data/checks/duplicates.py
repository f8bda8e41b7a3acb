"""Rows that stand in the data more than once, found with 44 bytes a row.

Of each row four 64-bit hashes are kept in flat arrays and compared once, at the end. Two different rows of n collide
with a probability of about n^2 / 2^65: 3 in 10^8 for a million rows. A collision costs a wrong notice, never a row.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynotune.data.checks.view import View
from dynotune.data.rows import Place, Row

_WITHIN, _BETWEEN = "\x1f", "\x1e"


class Duplicates:
    """Takes rows one at a time with `add`; `found` names the later rows of every group of equals."""

    def __init__(self) -> None:
        self._row, self._content, self._near = array("Q"), array("Q"), array("Q")
        self._prompt = array("Q")
        self._files: dict[str, int] = {}
        self._file, self._line = array("i"), array("q")

    def add(self, row: Row, values: Mapping[str, Any]) -> None:
        """`values` is the row as read, with its id and all other columns."""
        view = View(row)
        content = _content(view)
        self._content.append(_hash(content))
        self._near.append(_hash(" ".join(content.casefold().split())))
        self._row.append(_hash(_canonical(values)))
        self._prompt.append(_hash(_content(view, without_answer=True)) if view.turns else 0)
        self._file.append(self._files.setdefault(row.place.file, len(self._files)))
        self._line.append(-1 if row.place.line is None else row.place.line)

    def found(self) -> Iterator[tuple[str, Place]]:
        """(notice, place) for every row that repeats an earlier one, wholly, in content, nearly, or in its prompt.

        The notices exclude each other, from the strictest on; `conflicting-answer` is the same prompt with another
        answer than the first row that has it.
        """
        row, content, near, prompt = (
            np.frombuffer(hashes, dtype=np.uint64) for hashes in (self._row, self._content, self._near, self._prompt)
        )
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
        line = self._line[index]
        return Place(list(self._files)[self._file[index]], None if line < 0 else line)


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
