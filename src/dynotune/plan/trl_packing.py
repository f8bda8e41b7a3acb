"""TRL's `packing: true`: a row becomes a bin of `max_length` tokens. This changes what a step contains.

TRL packs in `datasets` maps of 1,000 rows, so the last bins of each thousand are less full. The bins here are the same
ones, in the same order, with the same documents in them (`trl.pack_dataset` in `data_utils.py`, 1.16; its test
is `tests/plan/test_trl_packing.py`). Rows that lose every label stay, as in TRL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dynotune.data.examples import Examples
from dynotune.plan.packing import best_fit, longest_first
from dynotune.plan.regroup import regroup

MAPPED_ROWS = 1000
"""Rows that are packed together: the batch of `datasets.Dataset.map`, which TRL leaves at its default."""


@dataclass(frozen=True, slots=True)
class Bins:
    """Rows after packing: bin b holds the documents `documents[offsets[b]:offsets[b + 1]]`, indices into `examples`."""

    examples: Examples
    documents: NDArray[np.int64]
    offsets: NDArray[np.int64]
    """[bins + 1]"""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def shuffled(self, seed: int) -> Bins:
        """The order of `datasets.Dataset.shuffle(seed)`, which TRL's `shuffle_dataset` applies once more to the bins."""
        order = np.random.default_rng(seed).permutation(len(self))
        documents, offsets = members(self.documents, self.offsets, order)
        return Bins(self.examples, documents, offsets)


def members(
    documents: NDArray[np.int64], offsets: NDArray[np.int64], bins: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The documents of these bins, one bin after the other, and the offsets [bins + 1] at which each begins."""
    sizes = offsets[bins + 1] - offsets[bins]
    ends = np.cumsum(sizes)
    within = np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)
    return documents[np.repeat(offsets[bins], sizes) + within], np.concatenate([[0], ends]).astype(np.int64)


def pack_rows(examples: Examples, order: NDArray[np.int64], strategy: str, max_length: int) -> Bins:
    """Pack the rows `order` (indices into `examples`, in the order of the data set) into bins of `max_length` tokens.

    `bfd` puts whole rows into bins and cuts what a row has beyond `max_length`; `bfd_split` cuts such a row into several
    documents instead and loses nothing; `wrapped` joins all rows of a thousand and cuts them every `max_length` tokens, so
    that one document holds pieces of several rows, which see each other.
    """
    if strategy == "wrapped":
        return _wrapped(examples, order, max_length)
    if strategy == "bfd_split":
        examples, thousands = _split(examples, order, max_length)
        order = np.arange(len(examples))
    else:
        assert strategy == "bfd", strategy
        thousands = np.append(np.arange(0, len(order), MAPPED_ROWS), len(order))
    lengths = np.minimum((examples.ends - examples.starts)[order], max_length)
    documents, sizes = [np.zeros(0, np.int64)], []
    for first, last in zip(thousands[:-1].tolist(), thousands[1:].tolist(), strict=True):
        rows = first + np.flatnonzero(lengths[first:last])
        bins = best_fit(lengths[rows].tolist(), longest_first(lengths[rows]), max_length)
        documents += [order[rows[one]] for one in bins]
        sizes += [len(one) for one in bins]
    return Bins(examples, np.concatenate(documents), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def _split(examples: Examples, order: NDArray[np.int64], max_length: int) -> tuple[Examples, NDArray[np.int64]]:
    """Every row in documents of at most `max_length`, and the offsets of the thousands of rows among them."""
    starts, ends = examples.starts[order], examples.ends[order]
    counts = -(-(ends - starts) // max_length)
    row = np.repeat(np.arange(len(order)), counts)
    before = np.concatenate([[0], np.cumsum(counts)])
    first = starts[row] + (np.arange(len(row)) - before[row]) * max_length
    parts = examples.parts(order[row], first, np.minimum(first + max_length, ends[row]))
    return parts, before[np.append(np.arange(0, len(order), MAPPED_ROWS), len(order))]


def _wrapped(examples: Examples, order: NDArray[np.int64], max_length: int) -> Bins:
    if np.any(examples.starts[order][1:] != examples.ends[order][:-1]):
        examples = regroup(examples, order)
        order = np.arange(len(examples))
    starts, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    ends = [np.zeros(0, np.int64)]
    for first in range(0, len(order), MAPPED_ROWS):
        thousand = order[first : first + MAPPED_ROWS]
        begin, end = int(examples.starts[thousand[0]]), int(examples.ends[thousand[-1]])
        cuts = np.arange(begin, end, max_length)
        starts.append(cuts)
        ends.append(np.minimum(cuts + max_length, end))
        rows.append(thousand[np.searchsorted(examples.ends[thousand], cuts, side="right")])
    parts = examples.parts(np.concatenate(rows), np.concatenate(starts), np.concatenate(ends))
    return Bins(parts, np.arange(len(parts)), np.arange(len(parts) + 1))
