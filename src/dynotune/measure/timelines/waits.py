"""Idle time of a device that its host's waits for it have brought about.

A wait until the device is done costs the host its lead: it stands for as long as what was queued takes to run. From then on
the device waits for launches, first while Python goes on and then between small kernels that run faster than they are
launched, until the host is as far ahead as it was. Without the wait each of those launches would have come earlier by as
long as the host stood, and by no more: what a wait costs is no longer than it took. So a wait of a host that is slow anyway,
which finds the device nearly done, costs next to nothing, and so does one behind which enough is still queued.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dynotune.measure.evidence import Source
from dynotune.measure.traces.attribution import Attribution, launches
from dynotune.measure.traces.events import Events
from dynotune.measure.traces.facts import WAIT


def behind_waits(
    events: Events, where: Attribution, ran: NDArray[np.int64], idle: Sequence[tuple[int, int]]
) -> Mapping[str, int]:
    """Nanoseconds of `idle` that are a wait's doing, by the wait: its name and, behind ` at `, its place.

    ran: indices of the device's events of the step. idle: spans in order, (start, end) in nanoseconds, in which nothing ran
    and no wait of the host for data or ranks was the reason."""
    waits, queue = _waits(events, where), _queue(events, ran)
    if not waits:
        return {}
    behind = _walk(waits, queue, idle, _Lead())
    # How the step before ended is not in this trace, but steps are alike: what this one's end costs the next one's begin was
    # there at its own begin, too. Where work is still queued at its end, the next one begins on a device that is busy.
    if int(events.end[ran].max(initial=0)) > where.step[1]:
        behind.lost = 0
    return _walk(waits, queue, idle, _Lead(behind.lost, behind.to)).cost


@dataclass(frozen=True, slots=True)
class _Wait:
    name: str
    end: int
    took: int
    """Nanoseconds in which the host stood."""


@dataclass(frozen=True, slots=True)
class _Queued:
    """Work of the device, from its launch on."""

    start: int
    lead: int
    """Nanoseconds from its launch to its start."""

    launched: int
    """When the call that launched it was over."""


@dataclass(slots=True)
class _Lead:
    """What waits have taken of the host's lead, while a step is walked through."""

    lost: int = 0
    """Nanoseconds by which launches would come earlier without them."""

    to: str = ""
    """The last of them."""

    cost: dict[str, int] = field(default_factory=dict)
    """Nanoseconds in which the device had nothing to do for it, by the wait."""


def _walk(waits: Sequence[_Wait], queue: Sequence[_Queued], idle: Sequence[tuple[int, int]], lead: _Lead) -> _Lead:
    """Through a step, from what was lost at its begin to what is lost at its end."""
    began = ended = 0

    def wait_until(time: int) -> None:
        nonlocal ended
        while ended < len(waits) and waits[ended].end <= time:
            lead.lost, lead.to = lead.lost + waits[ended].took, waits[ended].name
            ended += 1

    def run_until(time: int) -> None:
        nonlocal began
        while began < len(queue) and queue[began].start <= time:
            wait_until(queue[began].start)
            if queue[began].lead >= lead.lost:
                lead.lost = 0  # as far ahead as it was: what comes now is not for the waits
            began += 1

    for start, stop in idle:
        run_until(start)
        wait_until(stop)
        # Between kernels that were queued in time a device pauses, too, for a microsecond or two.
        late = began == len(queue) or queue[began].launched > start
        took = min(lead.lost, stop - start) if late else 0
        if took:
            lead.cost[lead.to] = lead.cost.get(lead.to, 0) + took
            lead.lost -= took
    if queue:
        run_until(queue[-1].start)
    return lead


def _waits(events: Events, where: Attribution) -> list[_Wait]:
    """In the order in which they end. Those in threads that are not followed, as a loader's, hold no launch up."""
    calls = np.flatnonzero(events.of_kind(Source.RUNTIME) & where.in_step & where.found).tolist()
    found, until = list[_Wait](), where.step[0]
    for i in sorted((i for i in calls if WAIT.match(events.names[i])), key=lambda i: int(events.end[i])):
        start, end, place = int(events.start[i]), int(events.end[i]), where.places[where.place[i]]
        name = f"{events.names[i]} at {place}" if place else events.names[i]
        found.append(
            _Wait(name, end, max(0, end - max(start, until)))
        )  # of several threads' at once no time counts twice
        until = max(until, end)
    return found


def _queue(events: Events, ran: NDArray[np.int64]) -> list[_Queued]:
    """In the order in which it starts. What has no launch in the trace had no lead."""
    calls, found = launches(events), list[_Queued]()
    for i in ran[np.argsort(events.start[ran], kind="stable")].tolist():
        start, call = int(events.start[i]), calls.get(int(events.correlation[i]))
        if call is None:
            found.append(_Queued(start, 0, start))
        else:
            found.append(_Queued(start, start - int(events.start[call]), int(events.end[call])))
    return found
