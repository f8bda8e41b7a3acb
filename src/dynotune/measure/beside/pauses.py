"""When training did not go on, by the host's clock, so that what a machine did meanwhile is no figure of training.

The warm-up, evaluations, checkpoints, proofs, and steps that compile. Times are those of `time.perf_counter`, by which
samples are stamped.
"""

import math
from collections import deque

MOST = 4096
"""Pauses that are kept, the latest: a run that saves every step looks at its last minutes only."""


class Pauses:
    """A pause is open from the beginning: the warm-up, which `warm` ends. Safe where another thread reads."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, float]] = deque(maxlen=MOST)
        self._warm = math.inf
        self._open: float | None = None

    def warm(self, at: float) -> None:
        """The warm-up is over."""
        self._warm = min(self._warm, at)

    def begin(self, at: float) -> None:
        """From here on it is no training. Nothing where it was none before."""
        self._open = at if self._open is None else self._open

    def end(self, at: float) -> None:
        """Training goes on."""
        if self._open is not None:
            self._past.append((self._open, at))
            self._open = None

    def add(self, begin: float, end: float) -> None:
        """What lies behind was none."""
        self._past.append((begin, end))

    def forget(self, before: float) -> None:
        """Nothing ahead of this time is asked for any more."""
        while self._past and self._past[0][1] < before:
            self._past.popleft()

    def trained(self, begin: float, end: float) -> bool:
        """Whether training went on throughout."""
        paused_since = self._open  # once: the loop's thread may end the pause between two looks
        if begin < self._warm or (paused_since is not None and end > paused_since):
            return False
        return not any(first < end and begin < last for first, last in list(self._past))
