"""Wall time of training windows, on the device's own clock where there is one.

The host runs ahead of a GPU, so its clock at the end of a step says when work was asked for, not when it was done. Events
on the device say when; the time between them holds data wait, optimizer and logging, and everything the GPU waited for.
"""

import time

import torch


class WindowClock:
    """Seconds of training in a window. Evaluation and checkpoints stop the clock; they are timed apart."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.marks: list[tuple[object, object]] = []
        self.started: object | None = self._now()

    def _now(self) -> object:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def stop(self) -> None:
        """End a stretch of training."""
        assert self.started is not None
        self.marks.append((self.started, self._now()))
        self.started = None

    def start(self) -> None:
        """Begin a stretch of training."""
        self.started = self._now()

    def window(self) -> "Window":
        """Close the window; the next one begins at the same instant, or at `start` if the clock is stopped."""
        if self.started is not None:
            end = self._now()
            self.marks.append((self.started, end))
            self.started = end
        window, self.marks = Window(self.marks, self.cuda), []
        return window


class Window:
    """A closed window; its seconds are known once the device has passed its end."""

    def __init__(self, stretches: list[tuple[object, object]], cuda: bool) -> None:
        self.stretches, self.cuda = stretches, cuda

    def seconds(self) -> float:
        if self.cuda:
            return sum(a.elapsed_time(b) for a, b in self.stretches) / 1e3  # type: ignore[attr-defined]
        return sum(b - a for a, b in self.stretches)  # type: ignore[operator]
