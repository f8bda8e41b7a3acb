"""A checkpoint that could not be written, and when to try again.

Such a failure never ends training: the process holds the only copy of what was trained since, and room may come back. It is
said each time, with what is still safe.
"""

import time
from collections.abc import Callable

from dynotune.errors import TrainingError

FIRST_PAUSE, LONGEST_PAUSE = 60.0, 1_800.0
"""Seconds until a save that failed is tried again, doubled each time. Saves that are due are tried all the same."""

PATIENCE = 600.0
"""Seconds for which the final model is tried again: it exists nowhere else."""

LITTLE_PATIENCE = 6.0
"""The same for the last checkpoint of a run that was asked to leave: whoever asked will not wait long."""

PAUSE = 2.0


class UnwrittenError(TrainingError):
    """A checkpoint could not be written. Those before it are as they were."""


class Unwritten:
    """What failed since a save last succeeded."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.failures = 0
        self.in_all = 0
        self._next = 0.0

    def failed(self, error: UnwrittenError) -> str:
        """Take note of a failure. Returns what is to be said."""
        pause = min(FIRST_PAUSE * 2**self.failures, LONGEST_PAUSE)
        self.failures, self.in_all, self._next = self.failures + 1, self.in_all + 1, self.now() + pause
        again = f"; {self.failures} saves in a row have failed" if self.failures > 1 else ""
        return (
            f"warning: {error} Training goes on without protection from there{again}. The save is tried again in"
            f" {pause:.0f} s, and whenever one is due."
        )

    def succeeded(self) -> None:
        self.failures = 0

    def due(self) -> bool:
        """Whether it is time to try again."""
        return self.failures > 0 and self.now() >= self._next


def patiently(
    work: Callable[[], None], seconds: float, say: Callable[[str], None], stop: Callable[[], bool] = lambda: False
) -> None:
    """Do `work`, and again for `seconds` while it raises `TrainingError`: somebody may make room. `stop` ends the wait."""
    ends = time.monotonic() + seconds
    while True:
        try:
            work()
        except TrainingError as error:
            left = ends - time.monotonic()
            if left <= 0 or stop():
                raise
            say(f"warning: {error} It is tried again every {PAUSE:.0f} s for {left:.0f} s more")
            time.sleep(PAUSE)
        else:
            return
