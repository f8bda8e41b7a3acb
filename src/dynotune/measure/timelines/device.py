"""The line of time of a GPU: what runs on it, and where nothing does, for what it waits."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dynotune.measure.evidence import Source
from dynotune.measure.kernel_classes import Work
from dynotune.measure.timelines.segments import LOADING, WAITING, Segments, clipped, marked
from dynotune.measure.timelines.waits import behind_waits
from dynotune.measure.traces.attribution import Attribution
from dynotune.measure.traces.events import Events

_COMPUTE, _COPY, _COMMUNICATION = 3, 2, 1


def of_device(events: Events, where: Attribution, classes: Mapping[int, Work]) -> Segments:
    ran = np.flatnonzero(events.of_kind(Source.KERNEL, Source.COPY) & where.in_step)
    begin = where.step[0]
    end = max(where.step[1], int(events.end[ran].max(initial=begin)))
    rank = {i: _rank(classes[i]) for i in ran.tolist()}
    edge, winner, hidden = _sweep(events, ran, rank, begin, end)
    idle = _Idle(events)
    edges, work, event = [begin], list[Work](), list[int]()
    for start, stop, i in zip(edge[:-1], edge[1:], winner, strict=True):
        if stop <= start:
            continue
        if i >= 0:
            edges.append(stop)
            work.append(classes[i])
            event.append(i)
            continue
        for until, kind in idle.split(start, stop):
            edges.append(until)
            work.append(kind)
            event.append(-1)
    reads = behind_waits(events, where, ran, idle.of_host)
    return Segments(np.array(edges, np.int64), tuple(work), np.array(event, np.int64), hidden, reads)


def _rank(work: Work) -> int:
    return _COMMUNICATION if work is Work.COMMUNICATION else _COPY if work is Work.COPIES else _COMPUTE


def _sweep(
    events: Events, ran: NDArray[np.int64], rank: Mapping[int, int], begin: int, end: int
) -> tuple[list[int], list[int], int]:
    """Edges, the event that has the line between each two, and nanoseconds of communication that were hidden."""
    changes: list[tuple[int, int, int]] = []
    for i in ran.tolist():
        start, stop = max(begin, int(events.start[i])), min(end, int(events.end[i]))
        if stop > start:
            changes += [(start, 1, i), (stop, 0, i)]
    changes.sort()
    open_: dict[int, list[int]] = {_COMPUTE: [], _COPY: [], _COMMUNICATION: []}
    edge, winner, hidden = [begin], list[int](), 0
    for time, starts, i in changes:
        if time > edge[-1]:
            has = next((open_[kind][0] for kind in (_COMPUTE, _COPY, _COMMUNICATION) if open_[kind]), -1)
            if open_[_COMMUNICATION] and has >= 0 and rank[has] != _COMMUNICATION:
                hidden += time - edge[-1]
            edge.append(time)
            winner.append(has)
        if starts:
            open_[rank[i]].append(i)
        else:
            open_[rank[i]].remove(i)
    if end > edge[-1]:
        edge.append(end)
        winner.append(-1)
    return edge, winner, hidden


class _Idle:
    """For what the device waited, in moments in which nothing ran on it."""

    def __init__(self, events: Events) -> None:
        self.of_host: list[tuple[int, int]] = []
        """Spans that were for the host, so far."""

        self._data, self._ranks = marked(events, LOADING), marked(events, WAITING)

    def split(self, start: int, stop: int) -> list[tuple[int, Work]]:
        """(until, for what), in order, from `start` to `stop`."""
        data, ranks = clipped(self._data, start, stop), clipped(self._ranks, start, stop)
        cuts = sorted({stop, *(edge for span in (*data, *ranks) for edge in span if start < edge < stop)})
        found: list[tuple[int, Work]] = []
        at = start
        for until in cuts:
            kind = Work.HOST
            if any(a <= at and until <= b for a, b in data):
                kind = Work.DATA
            elif any(a <= at and until <= b for a, b in ranks):
                kind = Work.RANKS
            else:
                self.of_host.append((at, until))
            if found and found[-1][1] is kind:
                found[-1] = (until, kind)
            else:
                found.append((until, kind))
            at = until
        return found
