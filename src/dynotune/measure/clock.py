"""Wall time of training by what it went to, on the device's own clock where there is one.

The host runs ahead of a GPU, so its clock at the end of a step says when work was asked for, not when it was done. Events
on the device say when; the time between them holds data wait, optimizer and logging, and everything the GPU waited for.
Nothing here waits: events are read when the device has passed them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dynotune.measure.beside.pauses import Pauses
from dynotune.measure.wall import TRAINING, Account, Kind, add, training


class WindowClock:
    """At any moment one kind of work goes on. Evaluations, checkpoints and proofs are in no window's training time."""

    def __init__(self, device: torch.device, pauses: Pauses | None = None) -> None:
        """pauses: is told when what is no training begins and ends, by the host's clock."""
        self.pauses = pauses or Pauses()
        self.cuda = device.type == "cuda"
        self.kind = Kind.HOST
        self._free: list[Any] = []
        """Events that were read and can be recorded again: making one costs as much as recording it."""

        self._stretches: list[tuple[Kind, Any, Any]] = []
        self._ends: list[int] = []
        """For each step that is over, the number of stretches up to its end."""

        self._caught_up: list[bool | None] = []
        self._update: Any = None
        self._began = self._now()

    def _now(self) -> Any:
        if not self.cuda:
            return time.perf_counter()
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def enter(self, kind: Kind) -> None:
        """From here on it is `kind` that goes on."""
        if kind is not self.kind:
            self._mark(kind)
        if kind is Kind.OPTIMIZER:
            self._update = self._began

    def _mark(self, kind: Kind) -> None:
        now = self._now()
        self._stretches.append((self.kind, self._began, now))
        if (kind in TRAINING) is not (self.kind in TRAINING):
            (self.pauses.end if kind in TRAINING else self.pauses.begin)(time.perf_counter())
        self.kind, self._began = kind, now

    def take_back(self) -> None:
        """The latest `enter` was nothing: what went on before has gone on. At most once behind each."""
        if self.cuda:
            self._free.append(self._began)
        self.kind, self._began, _ = self._stretches.pop()

    @contextmanager
    def within(self, kind: Kind) -> Iterator[None]:
        """Inside it is `kind`, behind it what it was before."""
        before = self.kind
        self.enter(kind)
        try:
            yield
        finally:
            self.enter(before)

    def step_end(self, waited: bool = False) -> None:
        """A step is over. What follows up to the next one's end is the next one's.

        waited: the host has waited for the device within the update, which therefore says nothing of who was ahead.
        """
        if self.cuda and self._update is not None and not waited:
            # Asks, and does not wait: a device that has done all but the update has caught up with the host.
            self._caught_up.append(bool(self._update.query()))
        else:
            self._caught_up.append(None)
        self._update = None
        self._mark(Kind.HOST)
        self._ends.append(len(self._stretches))

    def lost(self) -> None:
        """What was done of the step so far is to be done again."""
        first = self._ends[-1] if self._ends else 0
        self.enter(Kind.HOST)
        self._stretches[first:] = [
            (Kind.LOST if kind in TRAINING else kind, a, b) for kind, a, b in self._stretches[first:]
        ]

    def stop(self, kind: Kind = Kind.PROOF) -> None:
        """End a stretch of training."""
        assert self.kind in TRAINING, self.kind
        self.enter(kind)

    def start(self) -> None:
        """Begin a stretch of training."""
        self.enter(Kind.HOST)

    def window(self) -> "Window":
        """Close the window; the next one begins at the same instant."""
        self._mark(self.kind)
        window = Window(self._stretches, self._ends, self._caught_up, self.cuda, self._free)
        self._stretches, self._ends, self._caught_up = [], [], []
        return window


class Window:
    """A closed window; its seconds are known once the device has passed its end."""

    def __init__(
        self,
        stretches: list[tuple[Kind, Any, Any]],
        ends: list[int],
        caught_up: list[bool | None],
        cuda: bool,
        free: list[Any],
    ) -> None:
        self.caught_up = caught_up
        """For each step, whether the device had nothing left to do but the update when the host had asked for all of it;
        None where that is not known, as on a CPU."""

        self._stretches, self._ends, self._cuda, self._free = stretches, ends, cuda, free
        self._read: list[tuple[Kind, float]] | None = None

    def _seconds(self) -> list[tuple[Kind, float]]:
        if self._read is None:
            if self._cuda:
                self._read = [(kind, a.elapsed_time(b) / 1e3) for kind, a, b in self._stretches]
                # Each event ends one stretch and begins the next; the last one begins the next window.
                self._free.extend(a for _, a, _ in self._stretches)
            else:
                self._read = [(kind, b - a) for kind, a, b in self._stretches]
            self._stretches = []
        return self._read

    def seconds(self) -> float:
        """Of training."""
        return training(self.account())

    def account(self) -> Account:
        """Seconds by kind, of the whole wall time."""
        found: Account = {}
        add(found, self._seconds())
        return found

    def steps(self) -> tuple[list[Account], Account]:
        """The account of each step that ended in the window, from the end of the one before it; and of what lies behind
        the last one, which is the next step's."""
        read = self._seconds()
        found = []
        for first, last in zip([0, *self._ends], [*self._ends, len(read)], strict=True):
            one: Account = {}
            add(one, read[first:last])
            found.append(one)
        return found[:-1], found[-1]
