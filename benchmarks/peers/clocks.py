"""Clocks of an arm, for our trainer and for others': callbacks of transformers.

Time is wall time over windows of steps behind a warm-up. Beside it `StepClock` notes, without waiting, what the device took
for each step and how often the allocator went to the driver: of a slow window they say which step it was, and whether memory
grew. On a CPU only the windows are timed.
"""

import time
from itertools import pairwise
from typing import Any

from transformers import TrainerCallback


class StepClock(TrainerCallback):
    """Of both sides. It waits for nothing while steps run."""

    def __init__(self) -> None:
        self.ends: list[Any] = []
        self.segments: list[int] = []
        """Calls of the allocator for memory of the device, so far."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._note()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._note()

    def _note(self) -> None:
        import torch

        if not torch.cuda.is_available():
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.ends.append(event)
        self.segments.append(torch.cuda.memory_stats().get("num_device_alloc", 0))

    def read(self) -> dict[str, Any]:
        """Of each step: milliseconds between its end and that of the step before, and segments that were asked for.

        Nothing on a CPU.
        """
        import torch

        if not self.ends:
            return {}
        torch.cuda.synchronize()
        return {
            "step_ms": [before.elapsed_time(end) for before, end in pairwise(self.ends)],
            "step_segments": [end - before for before, end in pairwise(self.segments)],
            "reserved_gib": torch.cuda.max_memory_reserved() / 2**30,
        }


class WindowClock(TrainerCallback):
    """Of TRL's trainer, which has none of its own: wall time at the end of each window, with the device's work done."""

    def __init__(self, steps: int) -> None:
        """steps: in a window."""
        self.steps = steps
        self.ends: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._note()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.steps == 0:
            self._note()

    def _note(self) -> None:
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())

    @property
    def seconds(self) -> list[float]:
        """Of each window."""
        return [b - a for a, b in pairwise(self.ends)]
