"""Memory of a GPU while it trains: what PyTorch's allocator holds, at most in each phase of a step, and what is left.

Peaks by phase come from steps that are looked at: PyTorch keeps one maximum, which is read and begun anew where one phase
follows another. That takes the host some 30 to 70 us each time, and a step has five phases, so it is done in few steps: the
first ones, those with the largest micro-batch so far, and others as far as the cost stays small. The peak over all phases
misses nothing.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

GIB = 1 << 30

FIRST_STEPS = 3
"""Of a process that are looked at in any case."""

BUDGET = 5e-6
"""Seconds a step that looking at phases may take, over the run: a step in some fifty is looked at for it. The look for a row
of metrics is not in it, or a run that logs often would look at nothing else."""


BETWEEN_STEPS = frozenset({"evaluation", "generation", "checkpoint"})
"""Phases that are looked at each time."""


@dataclass(slots=True)  # not frozen: making one that is takes three times as long
class Allocator:
    """PyTorch's own counters, in bytes."""

    allocated: int
    peak: int
    """Most that was allocated since the last reset."""

    reserved: int
    unusable: int
    """Reserved in pieces that are left of larger ones, which only what fits into them can use."""

    retries: int
    """How often an allocation went through only after caches were given back to the device."""

    out_of_memory: int
    most_reserved: int = 0
    """Since the last reset."""

    @classmethod
    def of(cls, nested: Mapping[str, Any]) -> "Allocator":
        """nested: of `torch.cuda.memory_stats_as_nested_dict`; empty before the device is used."""

        none: dict[str, dict[str, int]] = {"all": {}}
        allocated, reserved = nested.get("allocated_bytes", none)["all"], nested.get("reserved_bytes", none)["all"]
        return cls(
            allocated.get("current", 0),
            allocated.get("peak", 0),
            reserved.get("current", 0),
            nested.get("inactive_split_bytes", none)["all"].get("current", 0),
            nested.get("num_alloc_retries", 0),
            nested.get("num_ooms", 0),
            reserved.get("peak", 0),
        )


class PhasePeaks:
    """Of one device. `begin` says what goes on, `step` that a step begins."""

    def __init__(self, total: int, read: Callable[[], Allocator], reset: Callable[[], None]) -> None:
        """total: bytes of the device. read, reset: of PyTorch's allocator."""
        self.total, self.read, self.reset = total, read, reset
        self.peaks: dict[str, int] = {}
        """Most bytes that were allocated, by phase."""

        self.peak = 0
        """The same over everything."""

        self.phase = ""
        self.looks = False
        self.steps = 0
        self.seconds = 0.0
        """Of the processor, that looking at phases took so far: that rows took is in what their writing took."""

        self._largest = 0
        self._reserved = 0
        self._retries, self._known_retries = 0, read().retries
        self._in_warm_up: int | None = None

    def step(self, largest: int) -> None:
        """A step begins. largest: tokens of its largest micro-batch."""
        self.steps += 1
        looks = self.steps <= FIRST_STEPS or largest > self._largest or self.seconds < BUDGET * self.steps
        self._largest = max(largest, self._largest)
        if self.phase and not looks:  # of a step that is looked at the first phase begins right behind
            self._timed_turn("")
        self.looks = looks

    def begin(self, phase: str) -> None:
        """From here on it is `phase` that goes on."""
        if (self.looks or phase in BETWEEN_STEPS) and phase != self.phase:
            self._timed_turn(phase)

    def look(self) -> Allocator:
        """The allocator now; its peak is taken in."""
        now = self.read()
        self.peak = max(self.peak, now.peak)
        self._reserved = max(self._reserved, now.reserved, now.most_reserved)
        return now

    def warm(self) -> None:
        """The warm-up is over: what the allocator did to find its size is no sign of a memory that is too small."""
        self._count_retries(self.read())
        self._in_warm_up = self._retries

    @property
    def retries(self) -> int:
        """Behind the warm-up, up to the latest figures."""
        return 0 if self._in_warm_up is None else self._retries - self._in_warm_up

    def _count_retries(self, now: Allocator) -> None:
        self._retries += now.retries - self._known_retries
        self._known_retries = now.retries

    def excuse(self) -> None:
        """Memory ran out, and what ran is taken again in less: what the allocator tried for it is over."""
        self._known_retries = self.read().retries

    def _timed_turn(self, phase: str) -> None:
        began = time.thread_time()
        self._turn(phase)
        self.seconds += time.thread_time() - began

    def _turn(self, phase: str) -> Allocator:
        now = self.look()
        if self.phase:
            self.peaks[self.phase] = max(now.peak, self.peaks.get(self.phase, 0))
        self.reset()
        self.phase = phase
        return now

    def figures(self, used: int | None) -> dict[str, float]:
        """For a row of metrics, in GiB. used: the most bytes of the device that all processes held since the last one, where
        that is known."""
        now = self._turn(self.phase)
        # The most against the most: what this process has given back since was its own.
        outside = max(0, used - self._reserved) if used is not None else 0
        self._reserved = now.reserved
        self._count_retries(now)
        found = {f"memory/peak_{phase}_gib": peak / GIB for phase, peak in self.peaks.items()}
        return {
            "peak_memory_gib": self.peak / GIB,
            "memory/allocated_gib": now.allocated / GIB,
            "memory/reserved_gib": now.reserved / GIB,
            **found,
            "memory/headroom_gib": (self.total - outside - self.peak) / GIB,
            "memory/headroom": (self.total - outside - self.peak) / self.total,
            "memory/fragmentation": now.unusable / now.reserved if now.reserved else 0.0,
            "memory/retries": self._retries,
        }
