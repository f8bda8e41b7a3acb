"""What measuring takes of the host, a step: stated by every run, in its rows and of the whole of it."""

from collections.abc import Callable, Sequence


class OwnCost:
    """Of one process. All seconds are processor time of the thread that trains."""

    def __init__(self) -> None:
        self.others: Sequence[Callable[[], float]] = ()
        """What else measures says the seconds that it has taken so far."""

        self._seconds, self.steps = 0.0, 0
        self._in_rows, self._steps_in_rows = 0.0, 0
        self._heard = 0.0

    def add(self, seconds: float, steps: int = 0) -> None:
        """What was measured of these steps took so much."""
        self._seconds += seconds
        self.steps += steps

    def hear(self) -> None:
        """Take in what the others took since the last time."""
        told = self._told()
        self._seconds += told - self._heard
        self._heard = told

    def leave_out(self) -> None:
        """What the others took since the last time is in what was added here."""
        self._heard = self._told()

    def since_the_last_row(self) -> float:
        """Microseconds a step. The next row begins."""
        took, steps = self._seconds - self._in_rows, self.steps - self._steps_in_rows
        self._in_rows, self._steps_in_rows = self._seconds, self.steps
        return 1e6 * took / max(1, steps)

    @property
    def a_step(self) -> float | None:
        """Microseconds, over all steps of this process; None where it took none."""
        return 1e6 * self._seconds / self.steps if self.steps else None

    def _told(self) -> float:
        return sum(one() for one in self.others)
