"""Pairs as what a plan lays out: a pair takes [what both sides begin with | chosen | rejected] of a micro-batch.

So steps of pairs, their micro-batches and their ladder are planned as those of documents are, and a pair is never cut.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dynotune.config.checking.preference import SORTING
from dynotune.config.dpo import DPOConfig
from dynotune.data.pairs import Pairs
from dynotune.plan.prompts import Alike, alike, linked
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

    alike: Alike | None = None
    """Which pairs have the same prompt; None where no two have, or where a prompt stands with each."""

    @property
    def group(self) -> int:
        return self.groups.size

    def apart(self) -> Self:
        """Where both sides are laid out whole, each by itself."""
        none = np.zeros_like(self.shared_tokens)
        return replace(self, lengths=self.side_lengths.sum(1), shared_tokens=none, alike=None)

    def without_groups(self) -> Self:
        """For pairs in any order, where no loss is computed of them."""
        return replace(self, groups=Groups(1, whole=False))

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of the pairs at `rows`, each by itself."""
        return np.asarray(self.lengths[rows], np.int64)

    def sequence_lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of both sides, the chosen one first."""
        return self.side_lengths[rows].reshape(-1)

    def attention_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Each side attends to itself, and what it begins with is computed once."""
        begun = np.stack([np.zeros(len(rows), np.int64), self.shared_tokens[rows]], 1)
        if self.alike is not None:
            begun = self.alike.begun(rows, self.side_lengths[rows], begun)
        return self.side_lengths[rows].reshape(-1), begun.reshape(-1)

    def together(self, rows: NDArray[np.int64], most: int | None) -> Together | None:
        """Groups that are to be whole, and pairs or groups with a prompt in common as far as one micro-batch holds them."""
        size = self.groups.size if self.groups.whole else 1
        if size == 1 and self.alike is None:
            return None
        places = np.arange(len(rows))
        atoms = np.split(places, places[size::size])
        if self.alike is None or most is None or self.alike.all_differ(rows):
            lengths = self.lengths_of(rows)
            return Together(atoms, np.add.reduceat(lengths, places[::size]) if len(rows) else lengths)
        sets = linked(atoms, self.alike.prompts[rows])
        members = [unit for one in sets for unit in self._fitting(rows, one, most)]
        return Together(members, np.array([self._tokens(rows[unit]) for unit in members], np.int64))

    def largest(self, rows: NDArray[np.int64], steps: NDArray[np.int64]) -> int:
        """Of a pair, or of a group that is to be whole."""
        lengths = self.lengths_of(rows)
        if self.groups.whole:
            size = self.groups.size
            lengths = np.add.reduceat(lengths, np.concatenate([np.arange(a, b, size) for a, b in pairwise(steps)]))
        return int(lengths.max())

    def _tokens(self, rows: NDArray[np.int64]) -> int:
        """That these pairs take in one micro-batch."""
        sides, begun = self.attention_of(rows)
        return int(sides.sum() - begun.sum())

    def _fitting(
        self, rows: NDArray[np.int64], atoms: list[NDArray[np.int64]], most: int
    ) -> Iterator[NDArray[np.int64]]:
        """Places that stand together, first fit: of two units no micro-batch of `most` tokens holds both, so what they have
        in common is counted as often as it is computed."""
        whole = np.concatenate(atoms)
        if len(atoms) == 1 or self._tokens(rows[whole]) <= most:
            yield whole
            return
        units: list[NDArray[np.int64]] = []
        for atom in atoms:
            for i, unit in enumerate(units):
                if self._tokens(rows[with_it := np.append(unit, atom)]) <= most:
                    units[i] = with_it
                    break
            else:
                units.append(atom)
        yield from units


def pair_spans(pairs: Pairs, groups: Groups) -> PairSpans:
    """Of all pairs of a data set, as far as they are used."""
    lengths, labels = pairs.lengths, pairs.label_counts
    # Each side keeps a token of its own, where one is the beginning of the other.
    shared = np.maximum(0, np.minimum(pairs.shared, lengths.min(1) - 1))
    return PairSpans(lengths.sum(1) - shared, labels.sum(1), labels, shared, lengths, groups, alike(pairs))
