"""What pairs of blocks say about a ratio of speeds: the estimate, its interval, two second opinions, and what more it takes.

All of it is in logarithms: a pair gives d = ln(rate of the arm / rate of the other). Twice as fast and half as fast are then
equally far from nothing, and swapping the arms turns signs and nothing else. Documents are the same within a pair, so
what they weigh cancels; drift slower than a pair cancels too. No step is dropped: a slow one widens the interval.

The interval is that of the sign-flip test: all means that the test would not reject. Its ends are quantiles of the means of
all subsets of the pairs (J. A. Hartigan, Using subsample values as typical values, JASA 64, 1969): of n pairs that are
symmetric about a middle, the middle lies between any two neighbours of these 2^n - 1 means with the same probability,
however long the tails are. Student's interval assumes normal pairs; where now and then a step is slow, it holds the middle
in 97 to 98 benches of a hundred, and so asks for pairs that nobody needs. Fewer than six pairs have too few signs for 95 %:
there it is Student's.

Student's t is computed here from its finite series (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and
26.7.4), which are exact for whole degrees of freedom, so that a bench needs no SciPy; tests compare the two.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dynotune.results.result import Interval

LEVEL = 0.95

SIGNS = 6
"""Pairs from which on signs tell 95 %: of five, all alike are one case in sixteen."""

LOOKS = 1.07
"""Intervals of fewer than `MANY` pairs are wider by this factor than a single look would need. A bench looks at the width
after every second pair and stops when it is small, which favours moments at which the spread is underestimated: without the
factor zero is missed in up to 7 % of benches of equal arms (where pairs spread by 0.9 %), with it in 6 % there."""

MANY = 16
"""Pairs, the most that a bench takes unasked: whoever comes so far did not stop at a lucky moment."""

NOISY = 0.01
"""A difference between two blocks of the same arm above which a difference of arms has to clear more (`margin_of`)."""

ENUMERATED = 20
"""Pairs up to which every pattern of signs is tried, and every subset; beyond, `DRAWS` of them at random."""

DRAWS = 10_000

BOOTSTRAP_FROM = 16
"""Pairs. A percentile interval of fewer covers too little: 80 % at 4 pairs, 88 % at 8, where t covers 94 %."""

MOST_PAIRS = 1000
"""Where a search for enough pairs ends."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of the mean log ratio. Widths and means are natural logarithms; `interval` is the ratio."""

    pairs: int
    mean: float
    low: float
    high: float
    """The interval at 95 %."""

    spread: float
    """Standard deviation of a pair."""

    median: float
    """A logarithm too."""

    sign_flip_p: float
    bootstrap: tuple[float, float] | None
    """Percentile interval of the mean; None below `BOOTSTRAP_FROM` pairs."""

    margin: float = 0.0
    """By how far the interval has to be off 0, for the noise of an arm against itself."""

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def interval(self) -> Interval:
        """Of the ratio."""
        return Interval(low=math.exp(self.low), estimate=math.exp(self.mean), high=math.exp(self.high))


def log_ratios(arm: Sequence[float], other: Sequence[float]) -> list[float]:
    """ln(rate of the arm / rate of the other) of each pair. Rates are positive, in the order of the pairs."""
    return [math.log(a / b) for a, b in zip(arm, other, strict=True)]


def estimate(log_ratios: Sequence[float], noise: Sequence[float] = (), *, seed: int = 0) -> Estimate:
    """From the log ratios of at least two pairs. noise: log ratios of pairs of one arm against itself.

    The median is there to disagree with the mean where pairs are far from symmetric; it decides nothing. seed: of what is
    drawn at random, which is nothing below `BOOTSTRAP_FROM` pairs.
    """
    low, high = _interval(log_ratios)
    return Estimate(
        pairs=len(log_ratios),
        mean=math.fsum(log_ratios) / len(log_ratios),
        low=low,
        high=high,
        spread=_spread(log_ratios),
        median=float(np.median(log_ratios)),
        sign_flip_p=sign_flip_p(log_ratios, seed=seed),
        bootstrap=bootstrap(log_ratios, seed=seed) if len(log_ratios) >= BOOTSTRAP_FROM else None,
        margin=margin_of(noise, len(log_ratios)),
    )


def half_width(log_ratios: Sequence[float]) -> float:
    """Of the interval that `estimate` gives: what decides whether a bench goes on."""
    low, high = _interval(log_ratios)
    return (high - low) / 2


def margin_of(noise: Sequence[float], pairs: int) -> float:
    """By how far the interval of so many pairs has to be off 0 where two blocks of one arm were more than `NOISY` apart:
    what is left of such a difference in their mean. Else 0.

    The interval itself says what it says. That a quiet moment of A against A is no evidence against the spread of the other
    pairs, and a loud one is, costs claims there and no truth.
    """
    if noise_floor(noise) <= NOISY:
        return 0.0
    return max(abs(d) for d in noise) / math.sqrt(pairs)


def noise_floor(noise: Sequence[float]) -> float:
    """How far two blocks of one arm were apart at most, as a share; 0 without any."""
    return math.expm1(max((abs(d) for d in noise), default=0.0))


def sign_flip_p(values: Sequence[float], *, seed: int = 0) -> float:
    """Two-sided p of the exact test that turns signs: how often a sum is as far from 0 if each sign were tossed.

    It assumes that pairs are symmetric about 0 where the arms are equal, and nothing of their distribution. Of 6 pairs it
    cannot be below 0.031. Above `ENUMERATED` pairs it is estimated from `DRAWS` patterns, the observed one among them.
    """
    observed = abs(math.fsum(values))
    reached = observed - 1e-9 * math.fsum(map(abs, values))  # sums in another order differ in their last digits
    if len(values) <= ENUMERATED:
        sums = np.array(values[:1], dtype=float)  # the first sign may stay: the mirrored pattern has the same distance
        for value in values[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return float(np.mean(np.abs(sums) >= reached)) if len(sums) else 1.0
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), size=(DRAWS - 1, len(values)))
    return float(1 + np.sum(np.abs(signs @ np.asarray(values)) >= reached)) / DRAWS


def bootstrap(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """Percentile interval of the mean from `DRAWS` samples with replacement."""
    array = np.asarray(values, dtype=float)
    picks = np.random.default_rng(seed).integers(len(array), size=(DRAWS, len(array)))
    low, high = np.quantile(array[picks].mean(axis=1), ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)


def t_tail(t: float, freedom: int) -> float:
    """P(T > t) of Student's t with `freedom` whole degrees of freedom."""
    assert freedom >= 1, freedom
    angle = math.atan(abs(t) / math.sqrt(freedom))
    cosine_squared = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 if odd else 1, freedom - 2 + odd, 2):
        term *= k / (k + 1) * cosine_squared
        total += term
    inside = math.sin(angle) * total
    if odd:
        inside = 2 / math.pi * (angle + inside)
    tail = max(0.0, (1 - inside) / 2)
    return tail if t >= 0 else 1 - tail


@lru_cache(maxsize=4096)
def t_quantile(probability: float, freedom: int) -> float:
    """The value that Student's t stays below with `probability`, which is at least one half. By bisection, to 1e-12."""
    assert 0.5 <= probability < 1, probability
    low, high = 0.0, 1.0
    while t_tail(high, freedom) > 1 - probability:
        low, high = high, 2 * high
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, freedom) > 1 - probability else (low, middle)
    return (low + high) / 2


def _spread(log_ratios: Sequence[float]) -> float:
    """Standard deviation of a pair."""
    pairs = len(log_ratios)
    assert pairs >= 2, "one pair has no spread"
    mean = math.fsum(log_ratios) / pairs
    return math.sqrt(math.fsum((d - mean) ** 2 for d in log_ratios) / (pairs - 1))


def _interval(log_ratios: Sequence[float]) -> tuple[float, float]:
    """At `LEVEL`, with what looking repeatedly costs. It always holds the mean: a subset and the rest lie on either side."""
    pairs = len(log_ratios)
    mean = math.fsum(log_ratios) / pairs
    if pairs < SIGNS:
        half = _half_width(_spread(log_ratios), pairs - 1, pairs)
        return mean - half, mean + half
    low, high = _middle(_subset_means(log_ratios))
    wider = LOOKS if pairs < MANY else 1.0
    return mean - wider * max(0.0, mean - low), mean + wider * max(0.0, high - mean)


def _middle(means: NDArray[np.float64]) -> tuple[float, float]:
    """The part in which the middle of the pairs lies at `LEVEL`; between neighbours as it is from one to the next."""
    count = len(means)
    rank = (1 - LEVEL) / 2 * (count + 1)  # so many of the gaps between neighbours lie outside on either side
    below = int(rank)
    part = rank - below
    ends = np.partition(means, [below - 1, below, count - below - 1, count - below])
    low = (1 - part) * ends[below - 1] + part * ends[below]
    high = (1 - part) * ends[count - below] + part * ends[count - below - 1]
    return float(low), float(high)


def _subset_means(values: Sequence[float]) -> NDArray[np.float64]:
    """Of every subset but the empty one; of very many pairs, of `DRAWS` subsets at random, the same each time."""
    if len(values) > ENUMERATED:
        chosen = np.random.default_rng(len(values)).random((DRAWS, len(values))) < 0.5
        chosen[~chosen.any(axis=1), 0] = True
        means: NDArray[np.float64] = chosen @ np.asarray(values, dtype=float) / chosen.sum(axis=1)
        return means
    sums, counts = np.zeros(1), np.zeros(1)
    for value in values:
        sums, counts = np.concatenate([sums, sums + value]), np.concatenate([counts, counts + 1])
    return sums[1:] / counts[1:]


def width_of(spread: float, pairs: int) -> float:
    """About half the width of the interval of so many pairs that spread so: Student's."""
    return _half_width(spread, pairs - 1, pairs)


def _half_width(spread: float, freedom: int, pairs: int) -> float:
    return (LOOKS if pairs < MANY else 1.0) * t_quantile((1 + LEVEL) / 2, freedom) * spread / math.sqrt(pairs)
