"""Pairs as what a plan lays out: a pair takes [what both sides begin with | chosen | rejected] of a micro-batch.

So steps of pairs, their micro-batches and their ladder are planned as those of documents are, and a pair is never cut.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dynotune.config.checking.preference import SORTING
from dynotune.config.dpo import DPOConfig
from dynotune.data.pairs import Pairs
from dynotune.plan.together import Together


@dataclass(frozen=True, slots=True)
class Groups:
    """Pairs that follow each other in a step, from its first on, make groups: what TRL calls a batch."""

    size: int
    """Pairs in a group; the last of a step may have fewer."""

    whole: bool
    """Whether a group stands in one micro-batch, since a loss sorts it."""


def groups_of(config: DPOConfig, held_out: bool = False) -> Groups:
    """Of training pairs, or of those of an evaluation, which TRL reads as one long step."""
    size = config.per_device_eval_batch_size if held_out else config.per_device_train_batch_size
    return Groups(size, not SORTING.isdisjoint(config.loss_type))


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

    groups: Groups

    @property
    def group(self) -> int:
        return self.groups.size

    def apart(self) -> Self:
        """Where both sides are laid out whole, each by itself."""
        return replace(self, lengths=self.side_lengths.sum(1), shared_tokens=np.zeros_like(self.shared_tokens))

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of the pairs at `rows`."""
        return np.asarray(self.lengths[rows], np.int64)

    def attention_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Each side attends to itself, and the common beginning is computed once."""
        return self.side_lengths[rows].reshape(-1), self.shared_tokens[rows]

    def together(self, rows: NDArray[np.int64], most: int | None) -> Together | None:
        """The groups of a step, where they are to be whole."""
        if not self.groups.whole or self.groups.size == 1:
            return None
        firsts = np.arange(0, len(rows), self.groups.size)
        tokens = np.add.reduceat(self.lengths_of(rows), firsts) if len(rows) else firsts
        return Together(np.split(np.arange(len(rows)), firsts[1:]), tokens)

    def largest(self, rows: NDArray[np.int64], steps: NDArray[np.int64]) -> int:
        """Of a pair, or of a group that is to be whole."""
        lengths = self.lengths_of(rows)
        if self.groups.whole:
            size = self.groups.size
            lengths = np.add.reduceat(lengths, np.concatenate([np.arange(a, b, size) for a, b in pairwise(steps)]))
        return int(lengths.max())


def pair_spans(pairs: Pairs, groups: Groups) -> PairSpans:
    """Of all pairs of a data set, as far as they are used."""
    lengths, labels = pairs.lengths, pairs.label_counts
    # Each side keeps a token of its own, where one is the beginning of the other.
    shared = np.maximum(0, np.minimum(pairs.shared, lengths.min(1) - 1))
    return PairSpans(lengths.sum(1) - shared, labels.sum(1), labels, shared, lengths, groups)
