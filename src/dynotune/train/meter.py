"""Metrics of training windows: each step leaves a small vector on the device, a window of them is read late."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dynotune.measure.beside.pauses import Pauses
from dynotune.measure.clock import Window, WindowClock
from dynotune.measure.compiles import Compiles
from dynotune.measure.late import LateReader
from dynotune.measure.wall import Account, Kind, add, settled, training
from dynotune.plan.plan import Step

LONGEST_WINDOW = 50
"""Steps after which a window is read although no log is due, so that a non-finite step is never found much later."""

LOOKS = 8
"""Steps, of which one's marks are timed and stand for the others': asking for a thread's processor time is a system call,
which takes as long as a mark does."""

WAITED = 1e-3
"""Seconds of a mark on a GPU, above which it waited: where the host is hundreds of launches ahead, the driver lets the next
one, whoever makes it, spin until there is room. Without the mark a kernel's launch would have waited, so it is no cost of
measuring (3.9 ms a step were stated on an H200 for replayed steps of 118 ms)."""

PROMPT = 20e-6
"""Seconds. A micro-batch that comes sooner was there already: no wait is marked."""


# The records of a step are not frozen: making one that is takes three times as long.
@dataclass(slots=True)
class StepRecord:
    """One step as read from the device."""

    step: Step
    learning_rate: float
    loss: float
    grad_norm: float
    finite: bool
    sums: tuple[float, ...]
    """The objective's sums, not divided by what it counts."""

    account: Account = field(default_factory=dict)
    """Seconds by kind of the time since the end of the step before it."""

    compiled: int = 0
    """Graphs that were made in it."""

    caught_up: bool | None = None
    """Whether the device had caught up with the host when the host had asked for all of the step; None: not known."""

    counts: tuple[int, ...] = ()
    """What each of `sums` is divided by."""


@dataclass(slots=True)
class WindowRecord:
    """A window of consecutive steps. `log`: whether it ends at a step where a log line is due."""

    steps: list[StepRecord]
    seconds: float
    """Of training."""

    log: bool
    account: Account = field(default_factory=dict)
    """Seconds by kind of the whole wall time of the window."""

    own_seconds: float = 0.0
    """What measuring took of the host: processor time of the thread that trains, so that neither a busy host nor the
    interpreter's other threads count."""


_Taken = tuple[Step, float, tuple[int, ...], int, float]
"""A step before it is read: with its learning rate, what its sums are divided by, the graphs that were made in it and their
seconds."""


class Meter:
    """Collects steps on the device and yields windows once they have arrived on the host."""

    def __init__(self, device: torch.device, pauses: Pauses | None = None) -> None:
        """pauses: is told of times that are no training, and of steps that compiled."""
        self.device, self.clock = device, WindowClock(device, pauses)
        self.late: LateReader[tuple[list[_Taken], Window, bool, float]] = LateReader(device)
        self.steps: list[_Taken] = []
        self.vectors: list[Tensor] = []
        self.own_seconds = 0.0
        """Of the open window."""

        self._taken = 0
        """Steps so far."""

        self._looks = True
        """Whether the marks of this step are timed."""

        self._spent = self._marks = 0.0
        """On the marks of this step so far, and on those of the latest step that was timed."""

        self._most = WAITED if device.type == "cuda" else math.inf
        self._compiles = Compiles()
        self._ended = time.perf_counter()
        """When the host was done with the latest step."""

        self._first = True
        self._behind: Account = {}
        """Of the windows read so far, what lies behind their last step."""

    def waited(self, batches: Iterator[Any], count: int) -> Iterator[Any]:
        """The first `count` of `batches` inside forward and backward, with the time until each is there as data wait.

        Forward and backward begins where the first one is there, with one mark that says how long that took, too; behind
        the last one nothing is asked for, and nothing is marked.
        """
        clock, looks = self.clock, self._looks
        for i in range(count):
            if i:
                began = time.thread_time() if looks else 0.0
                asked = clock.now()
                if looks:
                    self._spend(began)
            at = time.perf_counter()
            batch = next(batches)
            took = time.perf_counter() - at
            began = time.thread_time() if looks else 0.0
            if not i:
                if took < PROMPT:
                    clock.enter(Kind.FORWARD_BACKWARD)
                else:
                    clock.enter_behind(Kind.DATA_WAIT, took, Kind.FORWARD_BACKWARD)
            elif took < PROMPT:
                clock.give_back(asked)
            else:
                clock.between(asked, Kind.DATA_WAIT)
            if looks:
                self._spend(began)
            yield batch

    def now(self, kind: Kind) -> None:
        """From here on the step does this."""
        if not self._looks:
            self.clock.enter(kind)
            return
        began = time.thread_time()
        self.clock.enter(kind)
        took = time.thread_time() - began
        if took < self._most:
            self._spent += took

    def _spend(self, began: float) -> None:
        """A mark's time, since `began`."""
        took = time.thread_time() - began
        if took < self._most:
            self._spent += took

    @contextmanager
    def aside(self, kind: Kind) -> Iterator[None]:
        """Inside it is `kind`, which is no training; behind it, what it was before. No step has what is compiled there."""
        with self._compiles.left_out(), self.clock.within(kind):
            yield

    def add(
        self, step: Step, learning_rate: float, vector: Tensor, waited: bool = False, counts: tuple[int, ...] = ()
    ) -> None:
        """Take in a step's `[loss, grad_norm, finite, *sums]`, and that it is over. waited: see `WindowClock.step_end`.
        counts: what each of the sums is divided by."""
        looks = self._looks
        began, now = time.thread_time() if looks else 0.0, time.perf_counter()
        self.clock.step_end(waited)
        graphs, seconds = self._compiles.since()
        if graphs:
            self.clock.pauses.add(self._ended, now)
        self._ended = now
        self.steps.append((step, learning_rate, counts, graphs, seconds))
        self.vectors.append(vector)
        if looks:
            self._spend(began)
            self._marks, self._spent = self._spent, 0.0
        self.own_seconds += self._marks
        self._taken += 1
        self._looks = self._taken % LOOKS == 1  # the first step stands for itself: what it touches is cold
        if len(self.steps) >= LONGEST_WINDOW:
            self.close(log=False)

    def close(self, log: bool, last: bool = False) -> None:
        """Send the open window on its way to the host. One without steps still says that a log is due. last: of the run, so
        that no time behind its last step is left out."""
        if self.steps or log or last:
            began = time.thread_time()
            window, own = self.clock.window(), self.own_seconds
            self.own_seconds = 0.0
            self.late.push((self.steps, window, log, own), self.vectors)
            self.steps, self.vectors = [], []
            self.own_seconds += time.thread_time() - began

    def windows(self, wait: bool = False) -> Iterator[WindowRecord]:
        """Windows that have arrived; with `wait`, all that were closed."""
        if not self.late.waiting:
            return
        began = time.thread_time()
        for (steps, window, log, own), values in self.late.arrived(wait):
            if wait:  # which spins until the device has passed, and that is no cost of measuring
                began = time.thread_time()
            accounts, behind = window.steps()
            records = []
            whole: Account = dict(behind)
            if accounts:
                earlier, self._behind = self._behind, behind
                add(accounts[0], earlier)
                for kind, of_window_before in earlier.items():
                    whole[kind] = whole.get(kind, 0.0) - of_window_before
            else:
                add(self._behind, behind)
            for taken, row, account, idle in zip(steps, values, accounts, window.caught_up, strict=True):
                step, learning_rate, counts, graphs, seconds = taken
                finite = row[2] != 0
                if seconds or self._first or not finite:
                    account = settled(account, seconds, first=self._first, kept=finite)
                    self._first = False
                for kind, of_step in account.items():
                    whole[kind] = whole.get(kind, 0.0) + of_step
                records.append(
                    StepRecord(
                        step, learning_rate, row[0], row[1], finite, tuple(row[3:]), account, graphs, idle, counts
                    )
                )
            self.own_seconds += time.thread_time() - began
            yield WindowRecord(records, training(whole), log, whole, own)
            began = time.thread_time()
        if not wait:
            self.own_seconds += time.thread_time() - began
