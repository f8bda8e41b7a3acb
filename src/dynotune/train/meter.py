"""Metrics of training windows: each step leaves a small vector on the device, a window of them is read late."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dynotune.measure.clock import Window, WindowClock
from dynotune.measure.late import LateReader
from dynotune.plan.plan import Step

LONGEST_WINDOW = 50
"""Steps after which a window is read although no log is due, so that a non-finite step is never found much later."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step as read from the device."""

    step: Step
    learning_rate: float
    loss: float
    grad_norm: float
    finite: bool
    sums: tuple[float, ...]
    """The objective's sums, not divided by what it counts."""


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """A window of consecutive steps. `log`: whether it ends at a step where a log line is due."""

    steps: list[StepRecord]
    seconds: float
    log: bool


class Meter:
    """Collects steps on the device and yields windows once they have arrived on the host."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.clock = device, WindowClock(device)
        self.late: LateReader[tuple[list[tuple[Step, float]], Window, bool]] = LateReader(device)
        self.steps: list[tuple[Step, float]] = []
        self.vectors: list[Tensor] = []

    def add(self, step: Step, learning_rate: float, vector: Tensor) -> None:
        """Take in a step's `[loss, grad_norm, finite, *sums]`."""
        self.steps.append((step, learning_rate))
        self.vectors.append(vector)
        if len(self.steps) >= LONGEST_WINDOW:
            self.close(log=False)

    def close(self, log: bool) -> None:
        """Send the open window on its way to the host. One without steps still says that a log is due."""
        if self.steps or log:
            values = torch.stack(self.vectors) if self.vectors else torch.empty(0, device=self.device)
            self.late.push((self.steps, self.clock.window(), log), values)
            self.steps, self.vectors = [], []

    def windows(self, wait: bool = False) -> Iterator[WindowRecord]:
        """Windows that have arrived; with `wait`, all that were closed."""
        for (steps, window, log), values in self.late.arrived(wait):
            records = [
                StepRecord(step, rate, row[0], row[1], bool(row[2]), tuple(row[3:]))
                for (step, rate), row in zip(steps, values.tolist(), strict=True)
            ]
            yield WindowRecord(records, window.seconds(), log)
