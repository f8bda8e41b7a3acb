"""Tokenised examples in flat arrays.

One array a column and two positions a row: a million rows cost no Python objects, a slice is a view, the same arrays can
be memory-mapped, and another order or a part of the rows is an index over them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from dynotune.data.places import Places
from dynotune.data.rows import Place

IGNORE = -100
"""The label of a token that carries no loss (transformers' and PyTorch's convention)."""

CHUNK_TOKENS = 1 << 22
"""Tokens that are looked at together. It bounds the memory of a pass over arrays that may be larger than memory."""


@dataclass(frozen=True, slots=True)
class Example:
    """One example, untruncated. `labels_T[t]` is `ids_T[t]` where token t is to be predicted, else `IGNORE`; where all are,
    it may be the same array. Neither is changed once it is here.

    Labels are not shifted: the loss at position t - 1 predicts `labels_T[t]`, so a label at position 0 has no
    predecessor and carries no loss.
    """

    ids_T: NDArray[np.int32]
    labels_T: NDArray[np.int32]
    place: Place


class Examples:
    """An immutable list of examples.

    `ids` and `labels` [tokens] int32 are flat; example i is their slice from `starts[i]` to `ends[i]` (both [rows] int64).
    `labels` may be the same array as `ids`, where every token carries loss. Where `per_example` is 2 they are the sides of
    pairs: 2p is the chosen and 2p + 1 the rejected side of pair p.
    """

    def __init__(
        self,
        ids: NDArray[np.int32],
        labels: NDArray[np.int32],
        offsets: NDArray[np.int64],
        places: Places,
        digest: str | None = None,
        per_example: int = 1,
    ) -> None:
        """offsets: [rows + 1] int64, ascending from 0. digest: that of these arrays, where it is known already."""
        assert len(places) % per_example == 0
        self.per_example = per_example
        assert len(ids) == len(labels) == offsets[-1]
        assert len(offsets) == len(places) + 1
        self.ids, self.labels, self.places = ids, labels, places
        self.starts, self.ends = offsets[:-1], offsets[1:]
        self._digest = digest

    @classmethod
    def from_list(cls, examples: Iterable[Example], per_example: int = 1) -> Self:
        kept = list(examples)
        offsets = np.zeros(len(kept) + 1, np.int64)
        np.cumsum([len(e.ids_T) for e in kept], out=offsets[1:])
        empty = [np.zeros(0, np.int32)]
        ids = np.concatenate([e.ids_T for e in kept] or empty).astype(np.int32, copy=False)
        labels = np.concatenate([e.labels_T for e in kept] or empty).astype(np.int32, copy=False)
        return cls(ids, labels, offsets, Places.of(e.place for e in kept), per_example=per_example)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Example:
        start, end = self.starts[index], self.ends[index]
        return Example(self.ids[start:end], self.labels[start:end], self.places[index])

    def take(self, rows: NDArray[np.int64]) -> Examples:
        """The documents at these indices, in this order, over the same token arrays. Of pairs see `take_rows`."""
        view = object.__new__(Examples)
        view.per_example = 1
        view.ids, view.labels, view.places = self.ids, self.labels, self.places.take(rows)
        view.starts, view.ends = self.starts[rows], self.ends[rows]
        order = hashlib.blake2b(self.digest().encode(), digest_size=16)
        order.update(np.ascontiguousarray(rows, "<i8").data)
        view._digest = order.hexdigest()
        return view

    def documents_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices [rows * per_example] of all documents of these rows: of each pair both sides, chosen first."""
        if self.per_example == 1:
            return rows
        return (rows[:, None] * self.per_example + np.arange(self.per_example)).ravel()

    def take_rows(self, rows: NDArray[np.int64]) -> Examples:
        """The examples of these rows, whole, in this order: where they are pairs, both sides of each."""
        view = self.take(self.documents_of(rows))
        view.per_example = self.per_example
        return view

    def parts(self, rows: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Examples:
        """One example for each of these spans of the flat arrays, [parts] each. It has the place of the row it is named by
        (`rows`), and its digest."""
        view = self.take(rows)
        view.starts, view.ends = starts, ends
        return view

    def digest(self) -> str:
        """A hash of every token, label and boundary in order: two data sets of the same digest are the same."""
        if self._digest is None:
            self._digest = digest_of(
                *(xxhash.xxh3_128_digest(np.ascontiguousarray(array, kind).data)
                  for array, kind in ((self.ids, "<i4"), (self.labels, "<i4"), (self.ends, "<i8")))
            )  # fmt: skip
        return self._digest

    @property
    def rows(self) -> int:
        """How many rows of training data these are: pairs, where they are sides of pairs."""
        return len(self) // self.per_example

    @property
    def places_of_rows(self) -> Places:
        """Where each row stands [rows]: both sides of a pair stand in one place."""
        return self.places if self.per_example == 1 else self.places.take(np.arange(0, len(self), self.per_example))

    def by_row(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Counts of documents [documents] summed over each row's [rows]."""
        summed: NDArray[np.int64] = counts.reshape(-1, self.per_example).sum(1)
        return summed

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each example, untruncated [rows]."""
        return self.ends - self.starts

    def label_counts(self, start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens with a label in the spans from `start` to `end` of the flat arrays, both [rows].

        Needs no memory for the tokens: they are looked at a chunk at a time, each once where spans do not overlap. (A
        label on the first token of a span is counted like any other; who wants those that carry loss starts behind it.)
        """
        counts = np.zeros(len(start), np.int64)
        order = np.argsort(start, kind="stable") if np.any(start[1:] < start[:-1]) else None
        first = start if order is None else start[order]
        last = end if order is None else end[order]
        row = 0
        while row < len(first):
            base = int(first[row])
            # Spans that begin in this chunk; the last of them may reach beyond it.
            stop = max(row + 1, int(np.searchsorted(first, base + CHUNK_TOKENS)))
            reach = max(base, int(last[row:stop].max()))
            before = np.zeros(reach - base + 1, np.int64)
            np.cumsum(self.labels[base:reach] != IGNORE, out=before[1:])
            found = before[np.maximum(last[row:stop], first[row:stop]) - base] - before[first[row:stop] - base]
            if order is None:
                counts[row:stop] = found
            else:
                counts[order[row:stop]] = found
            row = stop
        return counts

    def row_of(self, position: int) -> int:
        """The row that holds a position of the flat arrays."""
        return int(np.flatnonzero((self.starts <= position) & (position < self.ends))[0])


def digest_of(ids: bytes, labels: bytes, ends: bytes) -> str:
    """The digest of examples, from the XXH3-128 of their arrays (little-endian int32, int32 and int64)."""
    return hashlib.blake2b(ids + labels + ends, digest_size=16).hexdigest()
