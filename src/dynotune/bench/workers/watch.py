"""Times steps of a run from inside its loop: where a block begins and ends, and what moved meanwhile."""

import time
from itertools import pairwise
from typing import Any

import torch
from transformers import TrainerCallback

from dynotune.measure.counters import counters
from dynotune.measure.steady import moved


class Watch(TrainerCallback):
    """Stops the loop behind a step, and keeps when each step ended.

    The first edge is the end of the step before the block, the last that of its last step: what lies between two steps
    (waiting for data, logging) is counted once each. Both edges wait for the device; between them nothing does.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.last = 0
        self.first = 0
        self.watches_counters = False
        self.edges: list[float] = []
        self.marks: list[Any] = []
        self.counted: list[dict[str, int]] = []
        """Counters behind each step, where they are watched."""

        self.around: list[dict[str, int]] = []
        """Counters at both edges."""

    def arm(self, first: int, last: int, watches_counters: bool) -> None:
        """Before the loop: it will stop behind `last`; the block begins with `first`."""
        self.first, self.last, self.watches_counters = first, last, watches_counters
        self.edges, self.marks, self.counted, self.around = [], [], [], []

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.first - 1:
            self._edge()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        number = state.global_step
        if number == self.last:
            control.should_training_stop = True
        if number in (self.first - 1, self.last):
            self._edge()
        else:
            self._mark()
        if self.watches_counters and number >= self.first:
            self.counted.append(counters(self.device))

    def _mark(self) -> None:
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def _edge(self) -> None:
        """Counters are read outside of the block."""
        if not self.edges:
            self.around.append(counters(self.device))
        self._mark()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.edges.append(time.perf_counter())
        if len(self.edges) == 2:
            self.around.append(counters(self.device))

    @property
    def moved(self) -> dict[str, int]:
        """By counter, how far it moved within the block; those that did."""
        before, after = self.around
        return moved(before, after)

    @property
    def seconds(self) -> float:
        """Wall time of the block."""
        first, last = self.edges
        return last - first

    @property
    def step_seconds(self) -> list[float]:
        """Of each step of the block: by events of the device where there are some."""
        marks = self.marks[-(self.last - self.first + 2) :]
        if self.device.type == "cuda":
            return [a.elapsed_time(b) / 1e3 for a, b in pairwise(marks)]
        return [b - a for a, b in pairwise(marks)]
