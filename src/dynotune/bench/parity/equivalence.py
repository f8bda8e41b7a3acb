"""Whether two trajectories of loss are the same within a margin (gate P3).

A test for a difference is the wrong tool here: gaps of neighbouring steps are alike, so gaps of a rounding error become
"significant" while a real mistake in noisy steps does not. What is shown instead is that the mean gap is small: two
one-sided tests (Schuirmann, 1987) on means of blocks of steps, which are less alike than the steps are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dynotune.bench.statistics import t_quantile, t_tail

LEVEL = 0.05
"""Of each of the two tests."""

STEPS_A_MEAN = 10


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Of a mean gap with 0."""

    mean: float
    low: float
    high: float
    """The interval at 90 %: gaps are equivalent where it lies within the margin."""

    margin: float
    p: float
    """The larger one of the two tests."""

    @property
    def equal(self) -> bool:
        return -self.margin < self.low and self.high < self.margin


def block_means(values: Sequence[float], steps: int = STEPS_A_MEAN) -> list[float]:
    """Means of `steps` neighbours each. What is left over at the end counts with the last."""
    blocks = max(1, len(values) // steps)
    bounds = [i * steps for i in range(blocks)] + [len(values)]
    return [math.fsum(values[a:b]) / (b - a) for a, b in pairwise(bounds) if b > a]


def equivalent(gaps: Sequence[float], margin: float) -> Equivalence:
    """Two one-sided t tests of at least two means of blocks. A gap that is not finite is equivalent to nothing."""
    count = len(gaps)
    assert count >= 2, "one mean has no spread"
    assert margin > 0, margin
    if not all(map(math.isfinite, gaps)):
        return Equivalence(math.nan, -math.inf, math.inf, margin, 1.0)
    mean = math.fsum(gaps) / count
    error = math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / (count - 1) / count)
    half = t_quantile(1 - LEVEL, count - 1) * error
    room = margin - abs(mean)
    p = t_tail(room / error, count - 1) if error > 0 else float(room <= 0)
    return Equivalence(mean, mean - half, mean + half, margin, p)


def margin_of(losses: Sequence[float], rerun_gaps: Sequence[float]) -> float:
    """The larger of 0.5 % of the mean loss and three times what a rerun with sums in another order is apart."""
    loss = math.fsum(losses) / len(losses)
    rerun = max(map(abs, block_means(rerun_gaps)), default=0.0) if rerun_gaps else 0.0
    return max(0.005 * abs(loss), 3 * rerun)
