"""To which phase, micro-batch and module each event of a trace belongs.

By time for the phase, in every thread that the profiler follows: autograd runs in threads of its own, and a call of
`backward` waits for them. By the innermost range around it for the place; in a backward by the node that runs, which takes
the place of the operator that made it (autograd numbers both alike, thread by thread). What ran on the device belongs where
its launch does, however late it ran.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dynotune.measure.evidence import Phase, Source
from dynotune.measure.traces.events import ANNOTATION, MARK, NODE, Events

STEP = f"{MARK}step"
PLACE = f"{MARK}place:"
PHASES = (Phase.OTHER, Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)

_PHASE_OF = {str(phase): PHASES.index(phase) for phase in PHASES}


def phase_mark(phase: Phase, micro_batch: int = -1) -> str:
    """The name of the range around a phase of a step."""
    return f"{MARK}{phase}" if micro_batch < 0 else f"{MARK}{phase}#{micro_batch}"


@dataclass(frozen=True, slots=True)
class Attribution:
    """One entry for each event."""

    in_step: NDArray[np.bool_]
    phase: NDArray[np.int64]
    """Index into `PHASES`."""

    micro_batch: NDArray[np.int64]
    """-1 where there is none."""

    place: NDArray[np.int64]
    """Index into `places`."""

    places: tuple[str, ...]
    """The first is empty: no place."""

    found: NDArray[np.bool_]
    """False: of a device event, or of a call in a thread that the profiler does not follow, the cause is not known."""

    operator: NDArray[np.int64]
    """Index of the operator or range that a runtime call or device event is linked to; -1 where there is none."""

    step: tuple[int, int]
    """Its begin and end, in nanoseconds."""


def attribute(events: Events) -> Attribution:
    """Where each event belongs. The trace must hold the range of the step."""
    marks = events.of_kind(ANNOTATION)
    step = next(i for i in np.flatnonzero(marks) if events.names[i] == STEP)
    begin, end = int(events.start[step]), int(events.end[step])
    n = len(events.names)

    operator = _operators_around(events)
    cause, thread, found = _causes(events, operator)
    when = events.start[cause]

    phases = [i for i in np.flatnonzero(marks).tolist() if _phase_and_micro_batch(events.names[i]) is not None]
    timeline = _Timeline.of(events, phases, range(len(phases)), outside=-1)
    of_phase = np.array([_phase_and_micro_batch(events.names[i]) for i in phases] + [(0, -1)], np.int64).reshape(-1, 2)
    in_range = timeline.at(when)
    phase = np.where(found, of_phase[in_range, 0], 0)
    micro_batch = np.where(found, of_phase[in_range, 1], -1)

    places, place_of_mark = _place_names(events, marks)
    place = np.zeros(n, np.int64)
    for where, line in _place_timelines(events, marks, place_of_mark).items():
        here = (thread == where) & found
        place[here] = line.at(when[here])

    in_step = (when >= begin) & (when < end)
    return Attribution(in_step, phase, micro_batch, place, places, found, operator, (begin, end))


def _operators_around(events: Events) -> NDArray[np.int64]:
    """For each runtime call and device event: the index of the operator or range that it is linked to; else -1."""
    of_number = _by_number(events, (Source.OPERATOR, Source.REGION, ANNOTATION))
    found = np.full(len(events.names), -1, np.int64)
    for i in np.flatnonzero(events.of_kind(Source.RUNTIME, Source.KERNEL, Source.COPY) & (events.linked > 0)).tolist():
        found[i] = of_number.get(int(events.linked[i]), -1)
    return found


def _causes(
    events: Events, operator: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """For each event: the host event whose time says where it belongs, that one's thread, and whether both were found.

    A thread that no operator was seen in is not followed: the feed's, or a library's own.
    """
    n = len(events.names)
    thread = _threads(events, operator)
    followed = set(np.unique(events.thread[events.of_kind(Source.OPERATOR, ANNOTATION)]).tolist())
    calls = launches(events)
    cause, found = np.arange(n), np.ones(n, np.bool_)
    for i in np.flatnonzero(events.of_kind(Source.RUNTIME, Source.KERNEL, Source.COPY)).tolist():
        call = i if events.kinds[i] is Source.RUNTIME else calls.get(int(events.correlation[i]), -1)
        if call >= 0 and int(thread[call]) in followed:
            cause[i] = call
        elif operator[i] >= 0:
            cause[i] = operator[i]
        else:
            cause[i], found[i] = (call if call >= 0 else i), False
    return cause, thread[cause], found


def _threads(events: Events, operator: NDArray[np.int64]) -> NDArray[np.int64]:
    """Threads of all events by the number that operators have. The CUDA library numbers them otherwise at times; the
    operators that its calls are linked to then say which is which."""
    thread = events.thread.copy()
    calls = events.of_kind(Source.RUNTIME)
    linked = calls & (operator >= 0)
    for number in np.unique(thread[linked]).tolist():
        known, times = np.unique(events.thread[operator[linked & (events.thread == number)]], return_counts=True)
        thread[calls & (events.thread == number)] = known[times.argmax()]
    return thread


def launches(events: Events) -> dict[int, int]:
    """By the number that a device event has as its correlation: the index of the runtime call that launched it."""
    return _by_number(events, (Source.RUNTIME,))


def _by_number(events: Events, kinds: Iterable[str]) -> dict[int, int]:
    return {int(events.correlation[i]): int(i) for i in np.flatnonzero(events.of_kind(*kinds))}


def _phase_and_micro_batch(name: str) -> tuple[int, int] | None:
    if not name.startswith(MARK):
        return None
    phase, _, micro_batch = name.removeprefix(MARK).partition("#")
    return (_PHASE_OF[phase], int(micro_batch or -1)) if phase in _PHASE_OF else None


def _place_names(events: Events, marks: NDArray[np.bool_]) -> tuple[tuple[str, ...], dict[int, int]]:
    """Names of places, none first; and by the index of a range's event the index of its place."""
    names, of_mark = {"": 0}, {}
    for i in np.flatnonzero(marks):
        if events.names[i].startswith(PLACE):
            of_mark[int(i)] = names.setdefault(events.names[i].removeprefix(PLACE), len(names))
    return tuple(names), of_mark


def _place_timelines(events: Events, marks: NDArray[np.bool_], place_of_mark: dict[int, int]) -> "dict[int, _Timeline]":
    """By thread: which place it is at, at any time."""
    threads = np.unique(events.thread[marks | events.of_kind(Source.OPERATOR)]).tolist()
    ranges: dict[int, list[int]] = {where: [] for where in threads}
    for i in place_of_mark:
        ranges[int(events.thread[i])].append(i)
    forward = {
        where: _Timeline.of(events, found, [place_of_mark[i] for i in found], outside=0)
        for where, found in ranges.items()
    }
    made_at = _places_of_nodes(events, forward)
    nodes = [i for i in np.flatnonzero(events.of_kind(Source.OPERATOR)).tolist() if events.names[i].startswith(NODE)]
    for i in nodes:
        ranges[int(events.thread[i])].append(i)
    of_node = {int(i): made_at.get((int(events.forward_thread[i]), int(events.sequence[i])), 0) for i in nodes}
    value = place_of_mark | of_node
    return {where: _Timeline.of(events, found, [value[i] for i in found], outside=0) for where, found in ranges.items()}


def _places_of_nodes(events: Events, forward: "dict[int, _Timeline]") -> dict[tuple[int, int], int]:
    """By PyTorch's thread number and sequence number: the place at which the node was made. Operators that make none carry
    the number of the next one, so that the last with a number is the one that made it."""
    made = (events.sequence >= 0) & (events.forward_thread == 0) & events.of_kind(Source.OPERATOR)
    found: dict[tuple[int, int], int] = {}
    for where, line in forward.items():
        here = np.flatnonzero(made & (events.thread == where))
        here = here[np.argsort(events.start[here], kind="stable")]
        keys = zip(events.torch_thread[here].tolist(), events.sequence[here].tolist(), strict=True)
        found.update(zip(keys, line.at(events.start[here]).tolist(), strict=True))
    return found


class _Timeline:
    """Which of nested ranges is the innermost, at any time."""

    def __init__(self, times: Sequence[int], values: Sequence[int], outside: int) -> None:
        self.times, self.values, self.outside = (
            np.array(times, np.int64),
            np.array([outside, *values], np.int64),
            outside,
        )

    def at(self, when: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.values[np.searchsorted(self.times, when, side="right")]

    @classmethod
    def of(cls, events: Events, ranges: Sequence[int], values: Iterable[int], outside: int) -> "_Timeline":
        """From the ranges of one thread, by their events, and what each stands for."""
        spans = [(int(events.start[i]), -int(events.end[i]), v) for i, v in zip(ranges, values, strict=True)]
        times: list[int] = []
        inside: list[int] = []
        open_: list[tuple[int, int]] = []

        def close_until(time: int) -> None:
            while open_ and open_[-1][0] <= time:
                times.append(open_.pop()[0])
                inside.append(open_[-1][1] if open_ else outside)

        for start, minus_end, value in sorted(spans):
            close_until(start)
            open_.append((-minus_end, value))
            times.append(start)
            inside.append(value)
        if open_:
            close_until(max(end for end, _ in open_))
        return cls(times, inside, outside)
