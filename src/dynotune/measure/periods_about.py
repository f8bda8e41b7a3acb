"""Slow-downs that come back about every so many steps: by the clock every 7.3 of them, or a step early or late.

Looked for is a comb of places so far apart, each three steps wide. Where nothing comes back, a place has one of the slowest
steps with the chance q with which any three steps in a row have one, and how many places do is at most binomial: what lies
in one place lies in no other.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHORTEST = 6
"""Steps: of a shorter period three are half of all."""

WIDTH = 3
"""Steps of a place: one early and one late."""

LADDER = 1.25
"""Numbers of events that are tried, each so many times the last."""

SLOW_A_CYCLE = (1, 2)
"""The slowest steps that are looked at, for each cycle at least: more than one finds what is slow among others."""


@dataclass(frozen=True, slots=True)
class About:
    """What comes back about every `every` steps."""

    every: float
    indices: tuple[int, ...]
    """Of the slow steps, in order."""

    log_chance: float
    """ln of the chance that this or better is seen where nothing comes back, over all periods and places."""


def about(order: NDArray[np.intp], least_cycles: int, least_share: float, log_unlikely: float) -> About | None:
    """The clearest. order: indices of all steps, the slowest first. least_share: of the cycles, that must have one.
    log_unlikely: ln of a chance; where nothing could be less likely than that, nothing is looked for."""
    steps = len(order)
    periods = _grid(steps, least_cycles)
    if not len(periods):
        return None
    tried = math.log(len(SLOW_A_CYCLE) * float(periods.sum()))  # each period has as many places as steps
    best: tuple[float, float, int, int] | None = None
    sizes = _sizes(steps)
    for factor in SLOW_A_CYCLE:
        wanted = np.searchsorted(sizes, factor * steps / periods)
        for i in np.flatnonzero(np.bincount(wanted)).tolist():
            here, count = periods[wanted == i], int(sizes[i])
            near = _near(order[:count], steps)
            most = int((steps - 1) / here[0]) + 1  # cycles; in all of them is the least likely that can be seen
            if most * math.log(len(near) / steps) + tried > log_unlikely:
                continue
            hits, place = _best_places(near, here)
            cycles = np.maximum(np.floor((steps - 1 - place) / here) + 1, hits)
            enough = hits >= least_share * cycles
            if not enough.any():
                continue
            chance = np.where(enough, _chernoff(hits, cycles, len(near) / steps), 0.0)
            k = int(chance.argmin())
            if best is None or chance[k] < best[0]:
                best = float(chance[k]), float(here[k]), int(place[k]), count
    if best is None:
        return None
    chance_of, every, begins, count = best
    indices = _one_a_cycle(order[:count], every, begins - 0.5)
    return About(_fitted(indices, every), tuple(indices.tolist()), chance_of + tried)


def _grid(steps: int, least_cycles: int) -> NDArray[np.float64]:
    """Neighbours drift apart by one step over the whole series, so that what lies between them is never half a step off."""
    longest, ratio = steps / least_cycles, 1 + 1 / steps
    count = int(math.log(longest / SHORTEST) / math.log(ratio)) + 1 if longest >= SHORTEST else 0
    return np.multiply(SHORTEST, np.power(ratio, np.arange(count)), dtype=np.float64)


def _sizes(most: int) -> NDArray[np.int64]:
    # By a set: numpy's own function loads a package of 6 ms when it is first called.
    return np.array(sorted(set((4 * LADDER ** np.arange(40)).astype(np.int64).clip(max=most).tolist())), dtype=np.int64)


def _near(slow: NDArray[np.intp], steps: int) -> NDArray[np.int64]:
    """Steps that are slow or just before or behind one that is."""
    near = np.zeros(steps + 2, dtype=bool)
    for shift in range(WIDTH):
        near[slow + shift] = True
    return np.flatnonzero(near[1:-1])


def _best_places(near: NDArray[np.int64], periods: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each period, the most cycles whose place has a slow step, and the middle of the place in the first one."""
    bins = int(periods.max()) + 2
    # In one place of memory: a table for each operation takes half as long again.
    phases = near / periods[:, None]
    np.floor(phases, out=phases)
    phases *= periods[:, None]
    np.subtract(near, phases, out=phases)
    np.ceil(phases, out=phases)
    phases += bins * np.arange(len(periods))[:, None]
    counts = np.bincount(phases.astype(np.int64).ravel(), minlength=bins * len(periods)).reshape(len(periods), bins)
    place = counts.argmax(axis=1)
    return counts[np.arange(len(periods)), place], place


def _one_a_cycle(slow: NDArray[np.intp], every: float, middle: float) -> NDArray[np.int64]:
    """Of these steps, the slowest first, those in the places around `middle` and each cycle on, in order."""
    cycle = np.round((slow - middle) / every)
    inside = np.abs(slow - middle - cycle * every) <= WIDTH / 2
    _, first = np.unique(cycle[inside], return_index=True)
    return np.sort(slow[inside][first])


def _chernoff(hits: NDArray[np.int64], cycles: NDArray[np.float64], q: float) -> NDArray[np.float64]:
    """ln of a bound on the binomial chance of so many hits or more, each of chance q (Chernoff, 1952)."""
    share = hits / cycles
    q = min(q, 1 - 1e-9)
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(share < 1, (1 - share) * np.log((1 - share) / (1 - q)), 0.0)
    far = share * np.log(np.maximum(share, 1e-12) / q) + rest
    return np.where(share > q, -cycles * far, 0.0)


def _fitted(indices: NDArray[np.int64], every: float) -> float:
    """The slope of places over cycles."""
    cycle = np.round((indices - indices[0]) / every)
    around = cycle - cycle.mean()
    return float((around * (indices - indices.mean())).sum() / (around**2).sum())
