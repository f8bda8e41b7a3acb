"""What a process holds as its run goes on, and whether that grows: a line is fitted, and its slope has a bound."""

import gc
import os
import threading
from dataclasses import dataclass, field
from typing import Any

import psutil
import torch
from scipy import stats
from transformers import TrainerCallback

WARM_UP = 300
"""Steps after which caches, pools and the allocator's arenas have their size."""

BOUNDS = {"MiB": 8.0, "objects": 400.0, "tensors": 20.0, "handles": 0.5, "threads": 0.5, "children": 0.5, "hooks": 0.5}
"""By how much each may grow in 1,000 steps. A leak of an object, a handle or 16 KiB a step is at least twice that."""


@dataclass
class Watch(TrainerCallback):  # type: ignore[misc]
    """Takes a sample every so many steps."""

    every: int = 50
    samples: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in ("step", *BOUNDS)})

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if state.global_step % self.every:
            return
        gc.collect()
        process, objects = psutil.Process(os.getpid()), gc.get_objects()
        now = {
            "step": state.global_step,
            "MiB": process.memory_info().rss / 2**20,
            "objects": len(objects),
            "tensors": sum(issubclass(type(one), torch.Tensor) for one in objects),
            "handles": process.num_fds(),
            "threads": threading.active_count(),
            "children": len(process.children(recursive=True)),
            "hooks": sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()),
        }
        for name, value in now.items():
            self.samples[name].append(value)

    def at(self, step: int) -> dict[str, float]:
        place = self.samples["step"].index(step)
        return {name: values[place] for name, values in self.samples.items()}

    def growth(self, after: int = WARM_UP) -> dict[str, float]:
        """By how much each grows in 1,000 steps: the median of the slopes between all pairs of samples (Theil and Sen),
        since steps with a save or an evaluation hold more than others."""
        first = next(place for place, step in enumerate(self.samples["step"]) if step >= after)
        steps = self.samples["step"][first:]
        return {name: 1000 * float(stats.theilslopes(self.samples[name][first:], steps).slope) for name in BOUNDS}


def growing(growth: dict[str, float]) -> set[str]:
    """What grows by more than its bound."""
    return {name for name, more in growth.items() if more > BOUNDS[name]}
