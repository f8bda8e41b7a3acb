"""Whether values that another backend or another version made are still those that this one makes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dynotune.reference.pairs import as_bytes

SAMPLE = 32
"""Pairs that are computed again."""

Score = Callable[[NDArray[np.int64]], NDArray[np.float64]]
"""Log-probabilities by the reference [n, columns] of pairs given by their numbers [n]."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far values computed again are from those that were kept."""

    pairs: int
    worst: float
    """Largest difference, relative to the log-probability (`relative`)."""

    bound: float

    @property
    def holds(self) -> bool:
        """Within the bound; never where something is not a number."""
        return self.worst <= self.bound

    def __str__(self) -> str:
        return (
            f"{self.pairs:,} pairs computed again differ by up to {self.worst:.2g} of their log-probability"
            f" ({'within' if self.holds else 'beyond'} {self.bound:.2g})"
        )


def agreement(kept: NDArray[np.float64], again: NDArray[np.float64], bound: float) -> Agreement:
    """Of two arrays [n, columns] of the same pairs."""
    return Agreement(len(kept), float(relative(again, kept).max(initial=0.0)), bound)


def relative(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The difference over the magnitude of `theirs`, of which less than 1 nat counts as 1: below that the rounding of the
    logits decides, which does not shrink with the log-probability. NaN is infinitely far off."""
    off = np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1.0)
    return np.where(np.isnan(off), np.inf, off)


def spread(digests: NDArray[np.uint8], candidates: NDArray[np.int64], count: int = SAMPLE) -> NDArray[np.int64]:
    """At most `count` of the candidates, evenly spread in the order of their digests: the same ones in every run, and
    nothing that the order of the data decides."""
    named = as_bytes(digests[candidates])
    order = sorted(range(len(candidates)), key=named.__getitem__)
    at = np.unique(np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(np.int64))
    return np.sort(candidates[np.array(order, np.int64)[at]]) if len(order) else candidates


def changes(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What made the values then, where it differs from now: `torch 2.11.0 instead of 2.13.0`."""
    names = [name for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
    return ", ".join(f"{name} {then.get(name, 'unknown')} instead of {now.get(name, 'none')}" for name in names)
