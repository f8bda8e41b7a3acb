"""About how many more pairs tell, where so many did not.

The mean of a few pairs is not the truth: on a noisy host one far from 0 is so by chance more often than not, and pairs that
go on bring it back. So the true ratio is taken as what the pairs leave likely, by Student's t, beside how large effects are
at all; and the number is the least by which a verdict is reached with a chance of `CHANCE`.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dynotune.bench.statistics import MOST_PAIRS, Estimate, width_of

CHANCE = 0.52
"""That so many more pairs tell. So chosen that on hosts, made up and recorded, the number is neither too small nor much more
than is needed (`benchmarks/results/bench_statistics.json`, `more_pairs`)."""

EFFECT = 0.005
"""Changes that gain or cost more, in ln, are taken to be as many from one to two per cent as from one to two times."""

LEAST_SPREAD = 1e-9
"""Of pairs that are all alike."""

POINTS = 61
"""True ratios that are tried."""

STEP = 1.08
"""Numbers of pairs that are tried, each at least so many times the last."""


def more_pairs(estimate: Estimate, clear: float, alike: float) -> int | None:
    """An even number, so that both orders run equally often; None above `MOST_PAIRS` in all.

    clear, alike: what the interval has to clear, and within what it has to be, in ln. What noise of an arm against itself
    leaves in the mean shrinks with the pairs as the interval does.
    """
    # By its size, so that swapping the arms changes nothing, to the last digit.
    mean, spread = abs(estimate.mean), max(estimate.spread, LEAST_SPREAD)
    true, weights = _likely(mean, spread, estimate.pairs)
    noise = estimate.margin * math.sqrt(estimate.pairs)
    more = 2
    while estimate.pairs + more <= MOST_PAIRS:
        pairs = estimate.pairs + more
        half = width_of(spread, pairs)
        far = half + max(clear, noise / math.sqrt(pairs))
        middle = (estimate.pairs * mean + more * true) / pairs
        told = _told(middle, spread * math.sqrt(more) / pairs, far, min(alike - half, far))
        if float(weights @ told) >= CHANCE:
            return more
        more = max(more + 2, 2 * round(STEP * more / 2))
    return None


def _likely(mean: float, spread: float, pairs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """True log ratios, and how likely each is; these add up to 1."""
    error, freedom = spread / math.sqrt(pairs), pairs - 1
    apart = np.sinh(np.linspace(-4, 4, POINTS)) / math.sinh(4)  # close around the mean of the pairs, and around 0
    true = np.unique(np.concatenate([mean + 8 * error * apart, 8 * EFFECT * apart]))
    t = (true - mean) / error
    log_density = -(freedom + 1) / 2 * np.log1p(t * t / freedom) - np.log(np.abs(true) + EFFECT)
    weights = np.exp(log_density - log_density.max()) * np.gradient(true)
    return true, weights / weights.sum()


def _told(middle: NDArray[np.float64], spread: float, far: float, near: float) -> NDArray[np.float64]:
    """The chance that a mean, normal about `middle`, is beyond `far` or within `near`, by middle."""
    apart = _below((middle - far) / spread) + _below((-far - middle) / spread)
    return apart + (_below((near - middle) / spread) - _below((-near - middle) / spread) if near > 0 else 0.0)


def _below(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the normal distribution."""
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in values.tolist()])
