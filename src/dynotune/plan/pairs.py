"""Pairs as what a plan lays out: a pair takes [what both sides begin with | chosen | rejected] of a micro-batch.

So steps of pairs, their micro-batches and their ladder are planned as those of documents are, and a pair is never cut.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dynotune.data.pairs import Pairs


@dataclass(frozen=True, slots=True)
class PairSpans:
    """What a plan knows of pairs, instead of `Spans`. All arrays are [pairs], or [pairs, 2] with the chosen side first."""

    lengths: NDArray[np.int64]
    """Tokens that a pair takes: of both sides, their common beginning once."""

    label_tokens: NDArray[np.int64]
    """Of both sides. A label token in the common beginning counts for each."""

    side_labels: NDArray[np.int64]
    """Label tokens of either side [pairs, 2]."""

    shared_tokens: NDArray[np.int64]
    """Tokens that are computed once for both sides."""

    side_lengths: NDArray[np.int64]
    """Tokens of either side [pairs, 2], the common beginning in both."""

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of the pairs at `rows`."""
        return np.asarray(self.lengths[rows], np.int64)

    def attention_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Each side attends to itself, and the common beginning is computed once."""
        return self.side_lengths[rows].reshape(-1), self.shared_tokens[rows]


def pair_spans(pairs: Pairs) -> PairSpans:
    """Of all pairs of a data set, as far as they are used."""
    lengths, labels = pairs.lengths, pairs.label_counts
    # Each side keeps a token of its own, where one is the beginning of the other.
    shared = np.maximum(0, np.minimum(pairs.shared, lengths.min(1) - 1))
    return PairSpans(lengths.sum(1) - shared, labels.sum(1), labels, shared, lengths)
