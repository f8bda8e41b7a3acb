"""What pairs of blocks say about a ratio of speeds: the estimate, its interval, two second opinions, and what more it takes.

All of it is in logarithms: a pair gives d = ln(rate of the arm / rate of the other). Twice as fast and half as fast are then
equally far from nothing, and swapping the arms turns signs and nothing else. Documents are the same within a pair, so
what they weigh cancels; drift slower than a pair cancels too. No step is dropped: a slow one widens the interval.

Student's t is computed here from its finite series (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and
26.7.4), which are exact for whole degrees of freedom, so that a bench needs no SciPy; tests compare the two.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dynotune.bench.result import Interval

LEVEL = 0.95

LOOKS = 1.05
"""Intervals are wider by this factor than a single look would need. A bench looks at the width after every second pair and
stops when it is small, which favours moments at which the spread is underestimated: without the factor zero is missed
in up to 7 % of benches of equal arms (where pairs spread by 0.9 %), with it in about 6 % there and 4 to 5 % elsewhere."""

NOISY = 0.01
"""A difference between two blocks of the same arm above which pairs of it count in the interval of every other."""

ENUMERATED = 20
"""Pairs up to which every pattern of signs is tried; beyond, `DRAWS` of them at random."""

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
    half_width: float
    """Of the interval at 95 %."""

    spread: float
    """Standard deviation of a pair, as the interval takes it."""

    median: float
    """A logarithm too."""

    sign_flip_p: float
    bootstrap: tuple[float, float] | None
    """Percentile interval of the mean; None below `BOOTSTRAP_FROM` pairs."""

    widened: bool
    """Whether pairs of an arm against itself made the interval wider."""

    @property
    def low(self) -> float:
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        return self.mean + self.half_width

    @property
    def interval(self) -> Interval:
        """Of the ratio."""
        return Interval(low=math.exp(self.low), estimate=math.exp(self.mean), high=math.exp(self.high))


def log_ratios(arm: Sequence[float], other: Sequence[float]) -> list[float]:
    """ln(rate of the arm / rate of the other) of each pair. Rates are positive, in the order of the pairs."""
    return [math.log(a / b) for a, b in zip(arm, other, strict=True)]


def estimate(log_ratios: Sequence[float], noise: Sequence[float] = (), *, seed: int = 0) -> Estimate:
    """From the log ratios of at least two pairs. noise: log ratios of pairs of one arm against itself.

    The sign-flip test and the median are there to disagree with the interval where pairs are far from normal; they decide
    nothing. seed: of what is drawn at random, which is nothing below `BOOTSTRAP_FROM` pairs.
    """
    spread, freedom, widened = _spread(log_ratios, noise)
    return Estimate(
        pairs=len(log_ratios),
        mean=math.fsum(log_ratios) / len(log_ratios),
        half_width=_half_width(spread, freedom, len(log_ratios)),
        spread=spread,
        median=float(np.median(log_ratios)),
        sign_flip_p=sign_flip_p(log_ratios, seed=seed),
        bootstrap=bootstrap(log_ratios, seed=seed) if len(log_ratios) >= BOOTSTRAP_FROM else None,
        widened=widened,
    )


def half_width(log_ratios: Sequence[float], noise: Sequence[float] = ()) -> float:
    """Of the interval that `estimate` gives: what decides whether a bench goes on."""
    spread, freedom, _ = _spread(log_ratios, noise)
    return _half_width(spread, freedom, len(log_ratios))


def noise_floor(noise: Sequence[float]) -> float:
    """How far two blocks of one arm were apart at most, as a share; 0 without any."""
    return math.expm1(max((abs(d) for d in noise), default=0.0))


def note_of_noise(noise: Sequence[float]) -> str:
    """That the host is noisy, as a sentence; empty where blocks of one arm were alike."""
    floor = noise_floor(noise)
    return f"Two blocks of the same arm were {floor:.1%} apart: intervals take that in." if floor > NOISY else ""


def pairs_needed(spread: float, wanted: float) -> int:
    """The fewest pairs whose interval would have half the width `wanted`, if pairs go on to spread as they do.

    At most `MOST_PAIRS`.
    """
    assert wanted > 0, wanted
    few, enough = 1, 2  # an interval narrows with every pair, so the number is searched by doubling, then by halves
    while enough < MOST_PAIRS and _half_width(spread, enough - 1, enough) > wanted:
        few, enough = enough, min(2 * enough, MOST_PAIRS)
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if _half_width(spread, middle - 1, middle) <= wanted else (middle, enough)
    return enough


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


def _spread(log_ratios: Sequence[float], noise: Sequence[float]) -> tuple[float, int, bool]:
    """Standard deviation of a pair, its degrees of freedom, and whether `noise` has made it larger.

    Where two blocks of the same arm were more than `NOISY` apart, their pairs are taken in: their mean is known to be 0, so
    each brings a degree of freedom. The wider of the two intervals stands, since a quiet moment of A against A says nothing
    against the spread of the others.
    """
    pairs = len(log_ratios)
    assert pairs >= 2, "one pair has no spread"
    mean = math.fsum(log_ratios) / pairs
    squares = math.fsum((d - mean) ** 2 for d in log_ratios)
    own = math.sqrt(squares / (pairs - 1)), pairs - 1
    if noise_floor(noise) <= NOISY:
        return *own, False
    freedom = pairs - 1 + len(noise)
    pooled = math.sqrt((squares + math.fsum(d * d for d in noise)) / freedom), freedom
    wider = _half_width(*pooled, pairs) > _half_width(*own, pairs)
    return *(pooled if wider else own), wider


def _half_width(spread: float, freedom: int, pairs: int) -> float:
    return LOOKS * t_quantile((1 + LEVEL) / 2, freedom) * spread / math.sqrt(pairs)
