"""The parts of a step that are under the profiler: each a session of its own, with a range around each watched module.

A session is begun and ended, never switched off and on again while it runs, which the device's own profiler does not bear.
"""

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch._C._autograd import _profiler_enabled
from torch.profiler import ProfilerActivity, profile, record_function

from dynotune.measure.traces.attribution import PLACE, STEP
from dynotune.measure.traces.places import Ranges


class Stretches:
    """Of one step."""

    def __init__(self, watched: Mapping[str, nn.Module], device: torch.device) -> None:
        """watched: the modules that get a range, by name."""
        self.device = device
        self.ranges = Ranges(watched, lambda name: f"{PLACE}{name}")
        self.results: list[Any] = []
        """What the profiler saw in each of those that are over, as it gives it."""

        self.seconds = 0.0
        """What beginning and ending them took, without what the device had left to do."""

        self.disturbed = False
        """Whether another profiler was running where one was to begin, which would have ended it; or ended one of ours."""

        self._profiler: Any = None
        self._open = ExitStack()
        self._mark: Any = None

    @property
    def running(self) -> bool:
        return self._profiler is not None

    def begin(self) -> None:
        """A stretch begins, unless another profiler runs."""
        assert not self.running
        if _profiler_enabled():
            self.disturbed = True
            return
        self._settle()
        began = time.perf_counter()
        with ExitStack() as opening:
            opening.enter_context(self.ranges)
            profiler = _profiler(self.device)
            profiler.start()
            opening.callback(profiler.stop)
            mark = record_function(STEP)
            mark.__enter__()
            self._open = opening.pop_all()
        self._profiler, self._mark = profiler, mark
        self.seconds += time.perf_counter() - began

    def end(self) -> None:
        """The stretch that runs is over; what the device still has to do belongs to it."""
        assert self.running
        self._close_mark()
        self._settle()
        began, profiler = time.perf_counter(), self._profiler
        ours = _profiler_enabled()  # another one that begins and ends within ours ends ours
        self.leave()
        self.disturbed |= not ours
        if ours:
            self.results.append(profiler.profiler.kineto_results)
        self.seconds += time.perf_counter() - began

    def leave(self) -> None:
        """Nothing of ours stands any more; what the stretch that runs has seen is lost."""
        self._close_mark()
        self._profiler = None
        self._open.close()

    def _close_mark(self) -> None:
        if self._mark is not None:
            self._mark.__exit__(None, None, None)
            self._mark = None

    def _settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _profiler(device: torch.device) -> Any:
    # Kineto writes two lines of its own to the terminal, each time. It reads this when it is used first.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    return profile(activities=activities, record_shapes=True)
