"""`max_time`: the run leaves early enough that its last save ends before the limit.

How early follows from what this process measured: its longest step of late, and its longest save. Before anything was saved,
a save is reckoned from the bytes that it will write.
"""

import time
from collections import deque
from collections.abc import Callable

OF_LATE = 50
"""Steps whose longest counts: a slow one long ago says little of the next."""

SLACK = 1.25
"""A save or a step may take that much longer than the longest so far."""

AT_LEAST = 1.0
"""Seconds that are always left: to report and to end the process."""

SLOW_DISK = 100e6
"""Bytes a second, where no save has been measured: what a network file system gives at least."""


class TimeLimit:
    """Counts on the monotonic clock: what sets the machine's clock changes nothing."""

    def __init__(
        self, seconds: float, began: float, save_bytes: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`began`: when the time began to count, on the clock `now`. `save_bytes`: what a checkpoint is reckoned to hold."""
        self.ends, self.seconds, self.now = began + seconds, seconds, now
        self.save_seconds, self.measured = save_bytes / SLOW_DISK, False
        self.steps: deque[float] = deque(maxlen=OF_LATE)
        self._last: float | None = None
        self._stood = 0.0
        self._other = 0.0

    def begin(self) -> None:
        """Steps begin."""
        self._last = self.now()

    def step(self) -> None:
        """A step is done."""
        now = self.now()
        if self._last is not None:
            self.steps.append(max(0.0, now - self._last - self._other))
        self._last, self._other = now, 0.0

    def saved(self, seconds: float) -> None:
        """For a save, steps stood still so long."""
        self._stood = max(self._stood, seconds)
        self._other += seconds

    def wrote(self, seconds: float) -> None:
        """To write a checkpoint took so long, whether steps stood still for it or not."""
        beside = self._stood < seconds
        needs = self._stood + seconds if beside else self._stood
        self.save_seconds = max(needs, self.save_seconds) if self.measured else needs
        self.measured = True

    def evaluated(self, seconds: float) -> None:
        """An evaluation took so long. It needs no time of its own: one that does not fit is left and made on resuming."""
        self._other += seconds

    @property
    def needed(self) -> float:
        """Seconds that have to be left for the save."""
        return AT_LEAST + SLACK * self.save_seconds

    def leaves_no_step(self) -> bool:
        """Whether another step and its save might not fit."""
        return self.now() + SLACK * max(self.steps, default=0.0) + self.needed >= self.ends

    def leaves_no_wait(self) -> bool:
        """Whether it is high time to save."""
        return self.now() + self.needed >= self.ends

    def is_over(self) -> bool:
        return self.now() >= self.ends
