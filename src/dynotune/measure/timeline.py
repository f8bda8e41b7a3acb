"""A traced step as a line of time on which each instant belongs to one class of work: so the classes add up to the step.

On a GPU the line is the device's: where kernels run side by side the one that computes wins over a copy, and both over
communication, whose hidden part is told apart. Where nothing runs the device is idle, and what the host did in that moment
says for what it waited: a batch, other ranks, or the host itself (launching, Python, a value that was read). On the CPU the
line is that of the thread that trains: its innermost operator, or nothing.

After the idle split of Holistic Trace Analysis (https://github.com/facebookresearch/HolisticTraceAnalysis), with the host's
own work in the place of its thresholds.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dynotune.measure.evidence import Phase, Source
from dynotune.measure.kernel_classes import IDLE, Ran, Surroundings, Work, trait_of_operator, work_of
from dynotune.measure.kernel_classes import Trait as _Trait
from dynotune.measure.trace_attribution import PHASES, Attribution
from dynotune.measure.trace_events import ANNOTATION, MARK, NODE, Events
from dynotune.measure.trace_facts import READ_ON_HOST, WAIT

DATA_MARK = f"{MARK}data"
"""The range around the wait for a batch."""

RANKS_MARK = f"{MARK}ranks"
"""The range around a wait for other ranks."""

_LOADING = re.compile(rf"^{re.escape(DATA_MARK)}|^enumerate\(DataLoader\)|DataLoaderIter\.__next__")
_RANKS = re.compile(rf"^{re.escape(RANKS_MARK)}|^(c10d|gloo|nccl|mpi|_c10d_functional)(::|:)")
_UPDATING = re.compile(r"^Optimizer\.(step|zero_grad)#|clip_grad")

_COMPUTE, _COPY, _COMMUNICATION, _NOTHING = 3, 2, 1, 0


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
    """Nanoseconds of idle time of the host behind a wait of it for the device, by the wait (`cudaStreamSynchronize`) and,
    behind ` at `, its place: the device had nothing to do until the host went on launching."""

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


def segments_of(events: Events, where: Attribution, around: Surroundings, on_device: bool) -> Segments:
    """on_device: whether the step ran on a device whose events the trace holds. Else the host's operators are the line."""
    classes = works(events, where, around)
    return _of_device(events, where, classes) if on_device else _of_host(events, where, classes)


def works(events: Events, where: Attribution, around: Surroundings) -> dict[int, Work]:
    """The class of each kernel, copy and operator of the step, by its index."""
    host = _Host(events, where)
    found: dict[int, Work] = {}
    known: dict[Ran, Work] = {}
    kinds = events.of_kind(Source.KERNEL, Source.COPY, Source.OPERATOR)
    for i in np.flatnonzero(kinds & where.in_step).tolist():
        operator = i if events.kinds[i] is Source.OPERATOR else int(where.operator[i])
        at = int(events.start[operator if operator >= 0 else i])
        ran = Ran(
            name=events.names[i],
            source=Source(events.kinds[i]),
            operator=events.names[operator] if operator >= 0 else "",
            place=where.places[where.place[i]],
            phase=PHASES[where.phase[i]],
            shapes=events.shapes[operator] if operator >= 0 else (),
            updating=PHASES[where.phase[i]] is Phase.UPDATE or host.updating(at),
            inside=host.functions(operator) if operator >= 0 else (),
        )
        if ran not in known:
            known[ran] = work_of(ran, around)
        found[i] = known[ran]
    return found


class _Host:
    """What surrounds operators on the host."""

    def __init__(self, events: Events, where: Attribution) -> None:
        self.events = events
        updates = [
            i for i, name in enumerate(events.names) if _UPDATING.search(name) and events.kinds[i] != Source.KERNEL
        ]
        spans = sorted((int(events.start[i]), int(events.end[i])) for i in updates)
        self._update_start = np.array([a for a, _ in spans], np.int64)
        self._update_end = np.array([b for _, b in spans], np.int64)
        self._functions = self._around()

    def updating(self, at: int) -> bool:
        i = int(np.searchsorted(self._update_start, at, side="right"))
        return bool((self._update_end[:i] > at).any())

    def functions(self, operator: int) -> tuple[str, ...]:
        return self._functions.get(operator, ())

    def _around(self) -> dict[int, tuple[str, ...]]:
        """By operator, the names of autograd functions (which have no `::`) and of operators of attention that it ran in."""
        events = self.events
        host = np.flatnonzero(events.of_kind(Source.OPERATOR))
        found: dict[int, tuple[str, ...]] = {}
        for thread in np.unique(events.thread[host]).tolist():
            here = host[events.thread[host] == thread]
            order = here[np.lexsort((-events.end[here], events.start[here]))]
            open_: list[tuple[int, str]] = []
            for i in order.tolist():
                while open_ and open_[-1][0] <= events.start[i]:
                    open_.pop()
                if open_:
                    found[i] = tuple(name for _, name in open_)
                name = events.names[i].removeprefix(NODE)
                if "::" not in name or trait_of_operator(name) is _Trait.ATTENTION:
                    open_.append((int(events.end[i]), name))
        return found


def _of_device(events: Events, where: Attribution, classes: Mapping[int, Work]) -> Segments:
    ran = np.flatnonzero(events.of_kind(Source.KERNEL, Source.COPY) & where.in_step)
    begin = where.step[0]
    end = max(where.step[1], int(events.end[ran].max(initial=begin)))
    rank = {i: _rank(classes[i]) for i in ran.tolist()}
    edge, winner, hidden = _sweep(events, ran, rank, begin, end)
    idle = _Idle(events, where)
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
    return Segments(np.array(edges, np.int64), tuple(work), np.array(event, np.int64), hidden, idle.reads)


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

    def __init__(self, events: Events, where: Attribution) -> None:
        self.events = events
        self.reads: dict[str, int] = {}
        marks = events.of_kind(Source.OPERATOR, Source.REGION, ANNOTATION)
        self._data = _spans(events, [i for i in np.flatnonzero(marks).tolist() if _LOADING.search(events.names[i])])
        self._ranks = _spans(events, [i for i in np.flatnonzero(marks).tolist() if _RANKS.search(events.names[i])])
        waits = [
            int(i)
            for i in np.flatnonzero(events.of_kind(Source.RUNTIME, Source.OPERATOR) & where.in_step)
            if (events.kinds[i] is Source.RUNTIME and WAIT.match(events.names[i])) or events.names[i] == READ_ON_HOST
        ]
        waits.sort(key=lambda i: int(events.end[i]))
        self._waits = waits
        self._wait_end = np.array([int(events.end[i]) for i in waits], np.int64)
        self._place = {i: where.places[where.place[i]] for i in waits}

    def split(self, start: int, stop: int) -> list[tuple[int, Work]]:
        """(until, for what), in order, from `start` to `stop`."""
        data, ranks = _clipped(self._data, start, stop), _clipped(self._ranks, start, stop)
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
                self._blame(at, until)
            if found and found[-1][1] is kind:
                found[-1] = (until, kind)
            else:
                found.append((until, kind))
            at = until
        return found

    def _blame(self, start: int, stop: int) -> None:
        """Idle time behind a wait of the host that ended with the device's work, or just after, is that wait's doing."""
        k = int(np.searchsorted(self._wait_end, start, side="left"))
        if k == len(self._waits):
            return
        i = self._waits[k]
        if int(self.events.start[i]) <= start and int(self.events.end[i]) <= stop:
            name = self.events.names[i]
            # A read is seen twice, as the operator and as the call inside of it: the call ends first and is the one found.
            place = self._place[i]
            key = f"{name} at {place}" if place else name
            self.reads[key] = self.reads.get(key, 0) + stop - start


def _spans(events: Events, which: Sequence[int]) -> list[tuple[int, int]]:
    """Of these events the union, as spans in order."""
    found: list[tuple[int, int]] = []
    for start, end in sorted((int(events.start[i]), int(events.end[i])) for i in which):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif end > start:
            found.append((start, end))
    return found


def _clipped(spans: Sequence[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int]]:
    first = int(np.searchsorted(np.array([b for _, b in spans], np.int64), start, side="right"))
    found = []
    for a, b in spans[first:]:
        if a >= stop:
            break
        found.append((a, b))
    return found


def _of_host(events: Events, where: Attribution, classes: Mapping[int, Work]) -> Segments:
    """By the innermost operator of the thread that trains; where it is in none, by those of other threads."""
    begin, end = where.step
    lines = _threads(events, where, classes)
    marks = events.of_kind(Source.OPERATOR, Source.REGION, ANNOTATION)
    data = _spans(events, [i for i in np.flatnonzero(marks).tolist() if _LOADING.search(events.names[i])])
    ranks = _spans(events, [i for i in np.flatnonzero(marks).tolist() if _RANKS.search(events.names[i])])
    edge = np.unique(
        np.clip(
            np.concatenate(
                [
                    np.array([begin, end], np.int64),
                    *(times for times, _ in lines),
                    np.array([x for span in (*data, *ranks) for x in span], np.int64),
                ]
            ),
            begin,
            end,
        )
    )
    at = edge[:-1]
    event = np.full(len(at), -1, np.int64)
    for times, values in lines:
        here = values[np.searchsorted(times, at, side="right")]
        event = np.where(event >= 0, event, here)
    in_data, in_ranks = _inside(data, at), _inside(ranks, at)
    work = []
    for k, i in enumerate(event.tolist()):
        if in_data[k]:
            work.append(Work.DATA)
        elif in_ranks[k] and (i < 0 or classes[i] is Work.COMMUNICATION):
            work.append(Work.COMMUNICATION if i >= 0 else Work.RANKS)
        else:
            work.append(classes[i] if i >= 0 else Work.HOST)
    event = np.where(in_data, -1, event)
    return Segments(edge, tuple(work), event)


def _inside(spans: Sequence[tuple[int, int]], at: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not spans:
        return np.zeros(len(at), np.bool_)
    starts, ends = np.array([a for a, _ in spans], np.int64), np.array([b for _, b in spans], np.int64)
    i = np.searchsorted(starts, at, side="right") - 1
    return (i >= 0) & (ends[np.maximum(i, 0)] > at)


def _threads(
    events: Events, where: Attribution, classes: Mapping[int, Work]
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Of each thread, the one that trains first: times of changes, and behind each (and before the first) the operator that
    is the innermost whose class is known; -1 for none."""
    operators = np.flatnonzero(events.of_kind(Source.OPERATOR) & where.in_step)
    found = []
    for thread in np.unique(events.thread[operators]).tolist():
        here = operators[events.thread[operators] == thread]
        order = here[np.lexsort((-events.end[here], events.start[here]))]
        times, values, open_ = list[int](), [-1], list[tuple[int, int]]()

        def close_until(time: int, times: list[int], values: list[int], open_: list[tuple[int, int]]) -> None:
            while open_ and open_[-1][0] <= time:
                times.append(open_.pop()[0])
                values.append(open_[-1][1] if open_ else -1)

        for i in order.tolist():
            # A function or node of autograd says nothing of its own time: what encloses it does not either.
            if trait_of_operator(events.names[i]) is _Trait.UNKNOWN:
                continue
            close_until(int(events.start[i]), times, values, open_)
            open_.append((int(events.end[i]), i))
            times.append(int(events.start[i]))
            values.append(i)
        if open_:
            close_until(max(end for end, _ in open_), times, values, open_)
        ran = int((events.end[here] - events.start[here]).sum())
        found.append((ran, np.array(times, np.int64), np.array(values, np.int64)))
    found.sort(key=lambda line: -line[0])
    return [(times, values) for _, times, values in found]


__all__ = ["DATA_MARK", "IDLE", "RANKS_MARK", "Segments", "segments_of", "works"]
