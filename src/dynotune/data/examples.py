"""Tokenised examples in flat arrays.

One array a column and one offset a row: a million rows cost a few Python objects, a slice is a view, and the same layout
can be memory-mapped.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dynotune.data.rows import Place

IGNORE = -100
"""The label of a token that carries no loss (transformers' and PyTorch's convention)."""


@dataclass(frozen=True, slots=True)
class Example:
    """One example, untruncated. `labels_T[t]` is `ids_T[t]` where token t is to be predicted, else `IGNORE`.

    Labels are not shifted: the loss at position t - 1 predicts `labels_T[t]`, so a label at position 0 has no
    predecessor and carries no loss.
    """

    ids_T: NDArray[np.int32]
    labels_T: NDArray[np.int32]
    place: Place


class Examples:
    """An immutable list of examples: `ids` and `labels` [total tokens] int32, `offsets` [rows + 1] int64."""

    def __init__(
        self,
        ids: NDArray[np.int32],
        labels: NDArray[np.int32],
        offsets: NDArray[np.int64],
        places: Sequence[Place],
    ) -> None:
        assert len(ids) == len(labels) == (offsets[-1] if len(offsets) else 0)
        assert len(offsets) == len(places) + 1
        self.ids, self.labels, self.offsets, self.places = ids, labels, offsets, places

    @classmethod
    def from_list(cls, examples: Iterable[Example]) -> Self:
        kept = list(examples)
        offsets = np.zeros(len(kept) + 1, np.int64)
        np.cumsum([len(e.ids_T) for e in kept], out=offsets[1:])
        empty = [np.zeros(0, np.int32)]
        ids = np.concatenate([e.ids_T for e in kept] or empty).astype(np.int32, copy=False)
        labels = np.concatenate([e.labels_T for e in kept] or empty).astype(np.int32, copy=False)
        return cls(ids, labels, offsets, [e.place for e in kept])

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Example:
        start, end = self.offsets[index], self.offsets[index + 1]
        return Example(self.ids[start:end], self.labels[start:end], self.places[index])

    def digest(self) -> str:
        """A hash of every token, label and boundary in order: two data sets of the same digest are the same."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.ids, self.labels, self.offsets):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each example, untruncated [rows]."""
        return np.diff(self.offsets)
