"""When an arm is warm: first nothing may move any more, then its steps must be level.

Events come first since a level alone deceives: a compiled arm is level between two compilations. `moved` takes counters as
a mapping and knows nothing of where they come from; by name, those of `COUNTERS` are put into words.

A program need not ever be level (E. Barrett et al., Virtual Machine Warmup Blows Hot and Cold, 2017). After `MOST_STEPS`
steps or `MOST_SECONDS` the bench goes on and says so.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

LEVEL_STEPS = 5
"""Steps whose median is compared with that of as many before them."""

LEVEL_SECONDS = 5.0
"""Of steps that take long fewer are compared, as many as fill this: what makes a short step uneven averages out in them."""

LEAST_LEVEL_STEPS = 2

SEGMENT_SECONDS = 1e-3
"""That a new segment of device memory takes, with room. In a step of 4 s ten of them are no event; with real data, whose
lengths differ, they come for dozens of steps (seen on an H200: 101 s of warming up for steps of 3.9 s)."""

LEVEL_SHARE = 0.02
LEVEL_DEVIATIONS = 3.0
"""Median absolute deviations of a step that two medians may be apart, where that is wider."""

MOST_STEPS = 50
MOST_SECONDS = 120.0

COUNTERS = {
    "compilations": ("compilation", "compilations"),
    "recompilations": ("recompilation", "recompilations"),
    "kernels": ("kernel compiled", "kernels compiled"),
    "autotunings": ("autotuning", "autotunings"),
    "graph_captures": ("graph capture", "graph captures"),
    "segments": ("new segment of device memory", "new segments of device memory"),
    "retries": ("retry of the allocator", "retries of the allocator"),
    "workers": ("first batch of a loader's worker", "first batches of loaders' workers"),
}
"""Names of counters in words, one and several. Others are said by their own name."""


def moved(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """By how much each counter has moved. One that was not there before stood at 0; one that has fallen has moved too."""
    return {name: abs(value - before.get(name, 0)) for name, value in after.items() if value != before.get(name, 0)}


def in_words(moves: Mapping[str, int]) -> str:
    """`2 compilations, 1 retry of the allocator`; empty where nothing moved."""
    return ", ".join(f"{n} {COUNTERS.get(name, (name, name))[n != 1]}" for name, n in moves.items())


def level(step_seconds: Sequence[float], steps: int = LEVEL_STEPS) -> bool:
    """Whether the last steps, so many, take as long as those before them, up to noise."""
    if len(step_seconds) < 2 * steps:
        return False
    before, last = step_seconds[-2 * steps : -steps], step_seconds[-steps:]
    middle = median(before)
    # Steps that fall deviate from their median as noisy ones do, but not from step to step, where two steps' noise adds up.
    changes = [b - a for a, b in pairwise((*before, *last))]
    deviation = min(_deviation(before), _deviation(changes) / math.sqrt(2))
    return abs(median(last) - middle) <= max(LEVEL_SHARE * middle, LEVEL_DEVIATIONS * deviation)


def _deviation(values: Sequence[float]) -> float:
    """Median, absolute."""
    middle = median(values)
    return median(abs(value - middle) for value in values)


@dataclass(slots=True)
class WarmingUp:
    """Takes in the steps of an arm until it is warm.

    Steps differ in length where their documents do: whoever feeds it gives seconds that are divided by the work of a step
    (its real tokens), or steps of equal work.
    """

    counters: Mapping[str, int]
    """Before the first step."""

    most_steps: int = MOST_STEPS
    most_seconds: float = MOST_SECONDS
    steps: int = 0
    seconds: float = 0.0
    events: list[str] = field(default_factory=list)
    """`2 compilations at step 1`."""

    compiled: list[int] = field(default_factory=list)
    """Steps with compilations."""

    _quiet: list[float] = field(default_factory=list)
    """Paces of the steps since something moved last."""

    _quiet_seconds: list[float] = field(default_factory=list)
    """Of the same steps."""

    def step(self, seconds: float, counters: Mapping[str, int], work: float = 1.0) -> None:
        """Take in one step: its seconds, the counters behind it, and its work in a unit of the caller's."""
        self.steps += 1
        self.seconds += seconds
        moves = moved(self.counters, counters)
        self.counters = dict(counters)
        if moves:
            self.events.append(f"{in_words(moves)} at step {self.steps}")
        if moves.get("compilations"):
            self.compiled.append(self.steps)
        if moves.keys() - {"segments"} or moves.get("segments", 0) * SEGMENT_SECONDS > LEVEL_SHARE * seconds:
            self._quiet.clear()
            self._quiet_seconds.clear()
        else:
            self._quiet.append(seconds / work)
            self._quiet_seconds.append(seconds)

    @property
    def stationary(self) -> bool:
        """Nothing that takes time moved during the last ten steps, or fewer where they take long, and they were level."""
        return level(self._quiet, self._level_steps)

    @property
    def lacking(self) -> int:
        """Steps without an event that it takes at least until it is warm, 1 or more."""
        return max(1, 2 * self._level_steps - len(self._quiet))

    @property
    def _level_steps(self) -> int:
        if not self._quiet_seconds:
            return LEVEL_STEPS
        fill = math.ceil(LEVEL_SECONDS / max(median(self._quiet_seconds), 1e-9))
        return min(LEVEL_STEPS, max(LEAST_LEVEL_STEPS, fill))

    @property
    def over(self) -> bool:
        """Whether the bench goes on: the arm is warm, or it has had its time."""
        return self.stationary or self.steps >= self.most_steps or self.seconds >= self.most_seconds

    @property
    def note(self) -> str:
        """What the reader must know, as a sentence; empty where the arm is warm."""
        if self.stationary:
            return ""
        why = (
            self.events[-1] if self.events and len(self._quiet) < 2 * self._level_steps else "its steps were not level"
        )
        return f"NOT STATIONARY after {self.steps} steps and {self.seconds:.0f} s of warming up: {why}."


def pays_back_after(extra_seconds: float, step_seconds: float, other_step_seconds: float) -> float | None:
    """Steps until an arm has made up for the seconds that it took longer to begin than the other.

    0 where it began no later; None where a step saves nothing, so that it never does.
    """
    if extra_seconds <= 0:
        return 0.0
    saved = other_step_seconds - step_seconds
    return extra_seconds / saved if saved > 0 and math.isfinite(saved) else None
