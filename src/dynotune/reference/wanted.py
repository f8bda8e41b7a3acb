"""The pairs of a run, each distinct one once, and the values that were found for them so far.

Legend of shapes: P pairs, U distinct pairs, C columns (chosen, rejected, and the tails of either where they are kept).
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dynotune.data.pairs import Pairs
from dynotune.errors import TrainingError
from dynotune.reference.check import Score
from dynotune.reference.pairs import as_bytes, distinct, pair_digests
from dynotune.reference.segments import Segment


class Wanted:
    """Values are NaN until they are known."""

    def __init__(self, pairs: Pairs, columns: int, score: Score) -> None:
        self.pairs, self.score = pairs, score
        self.digests_P = pair_digests(pairs)
        self.firsts_U, self.which_P = distinct(self.digests_P)
        self.digests_U = self.digests_P[self.firsts_U]
        self.tokens_U: NDArray[np.int64] = pairs.lengths.sum(1)[self.firsts_U]
        self.values_UC = np.full((len(self.firsts_U), columns), np.nan)

    @cached_property
    def numbers(self) -> dict[bytes, int]:
        """Which distinct pair a digest belongs to."""
        return {digest: u for u, digest in enumerate(as_bytes(self.digests_U))}

    def unknown(self) -> NDArray[np.int64]:
        """Distinct pairs without a value, in order."""
        return np.flatnonzero(np.isnan(self.values_UC[:, 0]))

    def found_in(self, segments: list[Segment]) -> NDArray[np.float64]:
        """What segments hold of these pairs [U, C]; a later one counts."""
        found_UC = np.full_like(self.values_UC, np.nan)
        for segment in segments:
            at = [(u, i) for i, d in enumerate(as_bytes(segment.digests)) if (u := self.numbers.get(d)) is not None]
            if at:
                places, rows = np.array(at, np.int64).T
                found_UC[places] = segment.values[rows]
        return found_UC

    def scored(self, at: NDArray[np.int64]) -> NDArray[np.float64]:
        """Values [n, C] of these distinct pairs, computed now. Raises `TrainingError` where one is not finite."""
        numbers = self.firsts_U[at]
        values = np.asarray(self.score(numbers), np.float64)
        assert values.shape == (len(at), self.values_UC.shape[1]), (values.shape, len(at), self.values_UC.shape)
        bad = np.flatnonzero(~np.isfinite(values).all(1))
        if len(bad):
            place = self.pairs.examples.places[2 * int(numbers[bad[0]])]
            raise TrainingError(
                f"The reference gives {values[bad[0]].tolist()} as log-probabilities of the pair at {place}"
                f" ({len(bad):,} of the {len(numbers):,} pairs of this batch have such values). None of them was kept."
                " Look for NaN in the model's weights, or compute in float32 (`bf16: false`)."
            )
        return values

    def batches(self, at: NDArray[np.int64], most: int, order: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Runs of these distinct pairs of at most `most` tokens; a longer pair is one by itself. `order`: of all pairs."""
        rank_P = np.empty(len(self.which_P), np.int64)
        rank_P[order] = np.arange(len(order))
        at = at[np.argsort(rank_P[self.firsts_U[at]], kind="stable")]
        first, total = 0, 0
        for i, tokens in enumerate(self.tokens_U[at].tolist()):
            if total and total + tokens > most:
                yield at[first:i]
                first, total = i, 0
            total += tokens
        if first < len(at):
            yield at[first:]
