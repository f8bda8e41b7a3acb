"""Slow-downs that come back: every so many steps one is slower than its neighbours, and what else happens just then.

Step times wander and differ with what a step holds, so each is compared with the median of its neighbours. Where nothing
comes back, what is left is in no order: for a period of p steps seen m times, how many of the m, 2 m or 4 m slowest steps
fall on one of its p places follows a hypergeometric distribution. A period is told only where that is very unlikely for all
periods and places together. `periods_about.py` finds those that are not that exact.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dynotune.measure.periods_about import about

LEAST_CYCLES = 4
"""Times that a slow-down must have come before it is called periodic."""

LEAST_STEPS = 32

UNLIKELY = 1e-4
"""Chance of a false alarm in one look, all periods and places together."""

LEAST_SHARE = 0.005
"""Of the time that a slow-down must cost to be told."""

MOST = 3
"""Periods at once that are looked for."""

MOST_HITS = 0.7
"""Of the slow steps, the share that must be among the slowest."""

ALTERNATES = 3
NEARLY_ALL = 0.9
"""The same of periods of up to `ALTERNATES` steps: a step that makes up for the one before alternates for a while."""

SLOW_A_CYCLE = (1, 2, 4)
"""The slowest steps that are looked at, for each cycle: more than one finds a slow-down among others of no order."""

LEAST_EVERY = 3
"""Steps of a period for each of those: where half of all steps are slow, nothing is."""

NEIGHBOURS = 15
"""Steps, one among them, whose median a step is compared with."""


@dataclass(frozen=True, slots=True)
class Period:
    """Every `every` steps one is slow."""

    every: int
    indices: tuple[int, ...]
    """Of the slow steps, in the series that was looked at."""

    extra: float
    """Seconds that a slow step takes more than the others around it: of the medians."""

    usual: float
    """Seconds of a step that is not slow: the median."""

    about: bool = False
    """Whether it comes a step early or late at times, or by the clock and not by steps."""

    @property
    def said(self) -> str:
        """`every 50 steps`."""
        return f"{'about ' * self.about}every {self.every} steps"

    @property
    def times(self) -> float:
        """How many times a usual step a slow one takes."""
        return (self.usual + self.extra) / self.usual

    @property
    def share(self) -> float:
        """Of the time, what the slow-down costs."""
        return self.extra / (self.every * self.usual + self.extra)


def find_period(seconds: Sequence[float]) -> Period | None:
    """The period of the clearest slow-down in step times, in order and without gaps; None where there is none."""
    return next(iter(find_periods(seconds, 1)), None)


def find_periods(seconds: Sequence[float], most: int = MOST) -> list[Period]:
    """Of the slow-downs in step times, the clearest first: each is looked for in what those before it leave."""
    found, times = list[Period](), np.array(seconds, dtype=np.float64)
    while len(found) < most and len(times) >= LEAST_STEPS and (one := _clearest(times)) is not None:
        found.append(one)
        times[list(one.indices)] -= one.extra
    return found


def _clearest(times: NDArray[np.float64]) -> Period | None:
    order = np.argsort(-above_neighbours(times), kind="stable")  # the slowest first, once for all periods
    found, best = _exact(times, order)
    loose = about(order, LEAST_CYCLES, MOST_HITS, math.log(UNLIKELY))
    # One of 6.5 steps is one of 13 as well, with half of its slow steps.
    half = loose is not None and found is not None and 1.5 * loose.every < found.every
    if loose is not None and loose.log_chance < (math.log(UNLIKELY) if half else best):
        one = _period(times, round(loose.every), loose.indices, about=True)
        if one.extra > 0 and one.share >= LEAST_SHARE:
            return one
    return found


def _exact(times: NDArray[np.float64], order: NDArray[np.intp]) -> tuple[Period | None, float]:
    """Of a whole number of steps, always at its place; with ln of its chance."""
    found, best = None, math.log(UNLIKELY)
    longest = len(times) // LEAST_CYCLES
    tried = math.log(len(SLOW_A_CYCLE) * longest * (longest + 1) / 2)  # places of all periods
    for every in _maybe_exact(order, longest):
        cycles, first = divmod(len(times), every)
        looked_at = every * cycles
        slowest = order[order >= first] if first else order  # whole cycles begin at `first`
        for slow in SLOW_A_CYCLE:
            if every < LEAST_EVERY * slow and slow > 1:
                break
            hits = np.bincount((slowest[: slow * cycles] - first) % every)
            place = int(hits.argmax())
            if hits[place] < (MOST_HITS if every > ALTERNATES else NEARLY_ALL) * cycles:
                continue
            chance = log_tail(int(hits[place]), looked_at, cycles, slow * cycles) + tried
            if chance < best:
                one = _period(times, every, range((first + place) % every, len(times), every))
                if one.extra > 0 and one.share >= LEAST_SHARE:
                    found, best = one, chance
    return found, best


def _maybe_exact(order: NDArray[np.intp], longest: int) -> list[int]:
    """Periods of which a place may have enough of the slowest steps: most have none, and to see that of all at once takes a
    tenth of the time that looking at each does."""
    steps = len(order)
    every = np.arange(2, longest + 1)
    cycles, first = np.divmod(steps, every)
    slow = np.where(every < LEAST_EVERY * 2, 1, np.where(every < LEAST_EVERY * 4, 2, 4))  # the most of SLOW_A_CYCLE
    # With the steps ahead of `first` they are no fewer than those that are looked at, in places that are turned.
    counts = np.minimum(slow * cycles + first, steps)
    ends, places = np.cumsum(counts), np.cumsum(every) - every
    of, within = (
        np.repeat(np.arange(len(every)), counts),
        np.arange(int(counts.sum())) - np.repeat(ends - counts, counts),
    )
    hits = np.bincount(order[within] % every[of] + places[of], minlength=int(every.sum()))
    enough = np.where(every > ALTERNATES, MOST_HITS, NEARLY_ALL) * cycles
    found: list[int] = every[np.maximum.reduceat(hits, places) >= enough].tolist()
    return found


def without_work(seconds: Sequence[float], work: Sequence[float]) -> NDArray[np.float64]:
    """Step times as if every step held as much: less what follows from its work, such as its tokens, by a straight line
    through the steps that are not among the slowest tenth."""
    times, work_of = np.asarray(seconds, dtype=np.float64), np.asarray(work, dtype=np.float64)
    if not len(times):
        return times
    kept = times <= np.sort(times)[int(0.9 * (len(times) - 1))]
    around = work_of - middle(work_of[kept])
    spread = float((around[kept] ** 2).sum())
    if spread == 0:
        return times
    slope = float((around[kept] * (times[kept] - middle(times[kept]))).sum()) / spread
    return times - max(0.0, slope) * around


def _period(times: NDArray[np.float64], every: int, indices: Sequence[int], *, about: bool = False) -> Period:
    """Each slow step against those between it and the slow ones beside it, whatever the level is there."""
    slow = np.zeros(len(times), dtype=bool)
    slow[list(indices)] = True
    more = []
    for i in indices:
        around = slice(max(0, i - every), i + every + 1)
        more.append(times[i] - middle(times[around][~slow[around]]))
    return Period(every, tuple(indices), middle(np.array(more)), middle(times[~slow]), about)


def middle(values: NDArray[np.float64]) -> float:
    """The median. numpy's own function takes ten times as long, and loads a package for it in a run's first look."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def above_neighbours(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each time less the median of those around it: what trends and levels leave."""
    half = NEIGHBOURS // 2
    padded = np.pad(times, half, mode="reflect")
    around = np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS)
    return (
        times - np.sort(around, axis=1)[:, half]
    )  # their median, which numpy's own function takes five times as long for


def log_tail(hits: int, steps: int, cycles: int, slow: int | None = None) -> float:
    """ln of the chance that at least `hits` of `cycles` steps, drawn from `steps`, are among `slow` given ones; unset, as
    many as `cycles`."""
    slow = cycles if slow is None else slow

    def log_choose(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    terms = [
        log_choose(slow, k) + log_choose(steps - slow, cycles - k) - log_choose(steps, cycles)
        for k in range(hits, min(cycles, slow) + 1)
        if cycles - k <= steps - slow
    ]
    most = max(terms)
    return most + math.log(sum(math.exp(term - most) for term in terms))


def what_has_it(period: Period, happened: Mapping[str, Collection[int]], parts: Mapping[str, Sequence[float]]) -> str:
    """The name of what comes with the slow steps; empty where nothing known does.

    happened: by name, the indices of the steps in which it happened. parts: by name, seconds of each step that went to it;
    one that holds most of what slow steps take more is named where nothing happened just then.
    """
    slow = set(period.indices)
    best, best_score = "", 0.0
    for name, steps in happened.items():
        both = len(slow.intersection(steps))
        covered, right = both / len(slow), both / max(1, len(steps))
        if covered >= 0.8 and right >= 0.4 and covered * right > best_score:
            best, best_score = name, covered * right
    if best:
        return best
    for name, values in parts.items():
        above = above_neighbours(np.asarray(values, dtype=np.float64))
        if middle(above[list(period.indices)]) >= 0.6 * period.extra:
            return name
    return ""
