"""Wall time of training by what it went to, on the device's own clock where there is one.

The host runs ahead of a GPU, so its clock at the end of a step says when work was asked for, not when it was done. Events
on the device say when; the time between them holds data wait, optimizer and logging, and everything the GPU waited for.
Nothing here waits: events are read when the device has passed them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

from dynotune.measure.beside.pauses import Pauses
from dynotune.measure.wall import TRAINING, Account, Kind, add, training

_OPTIMIZER, _HOST = Kind.OPTIMIZER, Kind.HOST


class WindowClock:
    """At any moment one kind of work goes on. Evaluations, checkpoints and proofs are in no window's training time."""

    def __init__(self, device: torch.device, pauses: Pauses | None = None) -> None:
        """pauses: is told when what is no training begins and ends, by the host's clock."""
        self.pauses = pauses or Pauses()
        self.cuda = device.type == "cuda"
        self.kind = Kind.HOST
        self._stream = torch.cuda.current_stream(device) if self.cuda else None
        """That training runs on. Known once, since an event that is not told looks for it, through six calls of Python."""

        self._free: list[Any] = []
        """Events that were read and can be recorded again: making one costs as much as recording it."""

        self._kinds: list[Kind] = []
        """Of the stretches, each of which begins where the one before it ends."""

        self._moments: list[Any] = []
        """The beginning of the first stretch, and the end of each."""

        self._waits: list[tuple[int, float]] = []
        """Of stretches that were no longer than so many seconds: what is over is of the one before."""

        self._ends: list[int] = []
        """For each step that is over, the number of stretches up to its end."""

        self._caught_up: list[bool | None] = []
        self._update: Any = None
        self._paused = False
        self._began = self.now()
        self._moments.append(self._began)

    def now(self) -> Any:
        """This moment, for `between`."""
        if not self.cuda:
            return time.perf_counter()
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def enter(self, kind: Kind) -> None:
        """From here on it is `kind` that goes on."""
        # Several times a step, with cold caches: each call and each name that is looked up counts.
        if self.cuda:
            now = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
            now.record(self._stream)
        else:
            now = time.perf_counter()
        self._kinds.append(self.kind)
        self._moments.append(now)
        self.kind, self._began = kind, now
        if kind is _OPTIMIZER:
            self._update = now
        if (kind not in TRAINING) is not self._paused:
            self._paused = not self._paused
            (self.pauses.begin if self._paused else self.pauses.end)(time.perf_counter())

    def enter_behind(self, wait: Kind, seconds: float, kind: Kind) -> None:
        """From here on it is `kind`, and the host's last seconds up to here were `wait`.

        One mark says both where the device has nothing to do since the latest one: it passes this one when the host does,
        and has waited for as long as the host, or since the latest mark if that is less.
        """
        self._kinds.append(self.kind)
        self._moments.append(self._began)
        self._waits.append((len(self._kinds), seconds))
        self.kind = wait
        self.enter(kind)

    def between(self, began: Any, kind: Kind) -> None:
        """From `began`, the latest mark or a moment behind it, up to here it was `kind`, and before and behind what goes
        on."""
        now = self.now()
        if began is not self._began:
            self._kinds.append(self.kind)
            self._moments.append(began)
        self._kinds.append(kind)
        self._moments.append(now)
        self._began = now

    def give_back(self, moment: Any) -> None:
        """Nothing came of it."""
        if self.cuda and moment is not self._began:
            self._free.append(moment)

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
        # Asks, and does not wait: a device that has done all but the update has caught up with the host.
        asked = self.cuda and self._update is not None and not waited
        self._caught_up.append(bool(self._update.query()) if asked else None)
        self._update = None
        self.enter(_HOST)
        self._ends.append(len(self._kinds))

    def lost(self) -> None:
        """What was done of the step so far is to be done again."""
        first = self._ends[-1] if self._ends else 0
        self.enter(Kind.HOST)
        self._kinds[first:] = [Kind.LOST if kind in TRAINING else kind for kind in self._kinds[first:]]

    def stop(self, kind: Kind = Kind.PROOF) -> None:
        """End a stretch of training."""
        assert self.kind in TRAINING, self.kind
        self.enter(kind)

    def start(self) -> None:
        """Begin a stretch of training."""
        self.enter(Kind.HOST)

    def window(self) -> "Window":
        """Close the window; the next one begins at the same instant."""
        self.enter(self.kind)
        window = Window(self._kinds, self._moments, self._waits, self._ends, self._caught_up, self.cuda, self._free)
        self._kinds, self._moments, self._waits, self._ends, self._caught_up = [], [self._began], [], [], []
        return window


class Window:
    """A closed window; its seconds are known once the device has passed its end."""

    def __init__(
        self,
        kinds: list[Kind],
        moments: list[Any],
        waits: list[tuple[int, float]],
        ends: list[int],
        caught_up: list[bool | None],
        cuda: bool,
        free: list[Any],
    ) -> None:
        self.caught_up = caught_up
        """For each step, whether the device had nothing left to do but the update when the host had asked for all of it;
        None where that is not known, as on a CPU."""

        self._kinds, self._moments, self._waits, self._ends = kinds, moments, waits, ends
        self._cuda, self._free = cuda, free
        self._read: list[float] | None = None

    def _seconds(self) -> list[float]:
        """Of each stretch."""
        if self._read is None:
            moments = self._moments
            if self._cuda:
                self._read = [0.0 if a is b else a.elapsed_time(b) / 1e3 for a, b in pairwise(moments)]
                # Each event once, and not the last one, with which the next window begins.
                self._free += [a for a, b in pairwise(moments) if a is not b]
            else:
                self._read = [b - a for a, b in pairwise(moments)]
            for i, seconds in self._waits:
                over = self._read[i] - seconds
                if over > 0:
                    self._read[i] = seconds
                    self._read[i - 1] += over
            self._moments = []
        return self._read

    def seconds(self) -> float:
        """Of training."""
        return training(self.account())

    def account(self) -> Account:
        """Seconds by kind, of the whole wall time."""
        found: Account = {}
        add(found, zip(self._kinds, self._seconds(), strict=True))
        return found

    def steps(self) -> tuple[list[Account], Account]:
        """The account of each step that ended in the window, from the end of the one before it; and of what lies behind
        the last one, which is the next step's."""
        read, kinds = self._seconds(), self._kinds
        found: list[Account] = []
        first = 0
        for last in (*self._ends, len(read)):
            one: Account = {}
            for i in range(first, last):
                kind = kinds[i]
                one[kind] = one.get(kind, 0.0) + read[i]
            found.append(one)
            first = last
        behind = found.pop()
        return found, behind
