"""A line of time, cut at every change of what goes on, and the stretches of it that ranges of the host mark."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dynotune.measure.evidence import Source
from dynotune.measure.kernel_classes import Work
from dynotune.measure.traces.events import ANNOTATION, MARK, Events

DATA_MARK = f"{MARK}data"
"""The range around the wait for a batch."""

RANKS_MARK = f"{MARK}ranks"
"""The range around a wait for other ranks."""

LOADING = re.compile(rf"^{re.escape(DATA_MARK)}|^enumerate\(DataLoader\)|DataLoaderIter\.__next__")
WAITING = re.compile(rf"^{re.escape(RANKS_MARK)}|^(c10d|gloo|nccl|mpi|_c10d_functional)(::|:)")


@dataclass(frozen=True, slots=True)
class Segments:
    """The step, cut at every change. `work[i]` holds from `edge[i]` to `edge[i + 1]`."""

    edge: NDArray[np.int64]
    """Nanoseconds, [segments + 1], never falling."""

    work: tuple[Work, ...]
    event: NDArray[np.int64]
    """Index of the event that ran; -1 where none did."""

    hidden: int = 0
    """Nanoseconds of communication behind other work."""

    reads: Mapping[str, int] = field(default_factory=dict)
    """Nanoseconds of idle time of the host that a wait of it for the device has brought about, by the wait
    (`cudaStreamSynchronize`) and, behind ` at `, its place: the device had nothing to do until the host was ahead again."""

    @property
    def total(self) -> int:
        """Nanoseconds."""
        return int(self.edge[-1] - self.edge[0])

    def by_work(self) -> dict[Work, int]:
        """Nanoseconds of each class. They add up to `total`, exactly."""
        found = dict.fromkeys(Work, 0)
        for work, took in zip(self.work, np.diff(self.edge).tolist(), strict=True):
            found[work] += took
        return found

    def by_event(self) -> dict[int, int]:
        """Nanoseconds in which each event had the line for itself."""
        found: dict[int, int] = {}
        for event, took in zip(self.event.tolist(), np.diff(self.edge).tolist(), strict=True):
            if event >= 0:
                found[event] = found.get(event, 0) + took
        return found


def marked(events: Events, name: re.Pattern[str]) -> list[tuple[int, int]]:
    """Where the host is in an operator or range of such a name, as spans in order."""
    marks = events.of_kind(Source.OPERATOR, Source.REGION, ANNOTATION)
    return spans_of(events, [i for i in np.flatnonzero(marks).tolist() if name.search(events.names[i])])


def spans_of(events: Events, which: Sequence[int]) -> list[tuple[int, int]]:
    """Of these events the union, as spans in order."""
    found: list[tuple[int, int]] = []
    for start, end in sorted((int(events.start[i]), int(events.end[i])) for i in which):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif end > start:
            found.append((start, end))
    return found


def clipped(spans: Sequence[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int]]:
    first = int(np.searchsorted(np.array([b for _, b in spans], np.int64), start, side="right"))
    found = []
    for a, b in spans[first:]:
        if a >= stop:
            break
        found.append((a, b))
    return found
