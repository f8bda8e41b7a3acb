"""The class of work of each kernel, copy and operator of a traced step, by what surrounds it on the host."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynotune.measure.evidence import Phase, Source
from dynotune.measure.kernel_classes import Ran, Surroundings, Trait, Work, trait_of_operator, work_of
from dynotune.measure.traces.attribution import PHASES, Attribution
from dynotune.measure.traces.events import NODE, Events

_UPDATING = re.compile(r"^Optimizer\.(step|zero_grad)#|clip_grad")


def works(events: Events, where: Attribution, around: Surroundings) -> dict[int, Work]:
    """The class of each kernel, copy and operator of the step, by its index."""
    host = _Host(events)
    of_step = np.flatnonzero(events.of_kind(Source.KERNEL, Source.COPY, Source.OPERATOR) & where.in_step)
    operators = np.where(events.of_kind(Source.OPERATOR)[of_step], of_step, where.operator[of_step])
    updating = host.updating(events.start[np.where(operators >= 0, operators, of_step)])
    columns = zip(
        of_step.tolist(), operators.tolist(), where.place[of_step].tolist(), where.phase[of_step].tolist(),
        updating.tolist(), strict=True,
    )  # fmt: skip
    found: dict[int, Work] = {}
    known: dict[tuple[Any, ...], Work] = {}  # thousands of events are alike in all that counts
    for i, operator, place, phase, updates in columns:
        called = operator >= 0
        key = (
            events.names[i], events.kinds[i], events.names[operator] if called else "", place, phase,
            events.shapes[operator] if called else (), updates, host.functions(operator) if called else (),
        )  # fmt: skip
        work = known.get(key)
        if work is None:
            name, kind, caller, _, _, shapes, _, inside = key
            ran = Ran(
                name=name,
                source=Source(kind),
                operator=caller,
                place=where.places[place],
                phase=PHASES[phase],
                shapes=shapes,
                updating=updates or PHASES[phase] is Phase.UPDATE,
                inside=inside,
            )
            work = known[key] = work_of(ran, around)
        found[i] = work
    return found


class _Host:
    """What surrounds operators on the host."""

    def __init__(self, events: Events) -> None:
        self.events = events
        names = {name for name in set(events.names) if _UPDATING.search(name)}
        updates = [i for i, name in enumerate(events.names) if name in names and events.kinds[i] != Source.KERNEL]
        spans = np.array(sorted((int(events.start[i]), int(events.end[i])) for i in updates), np.int64).reshape(-1, 2)
        self._update_start, self._update_end = spans[:, 0], np.maximum.accumulate(spans[:, 1])
        self._functions = self._around()

    def updating(self, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the optimizer or clipping is at work, at each of these times."""
        begun = np.searchsorted(self._update_start, at, side="right")
        return (begun > 0) & (np.append(self._update_end, 0)[begun - 1] > at)

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
            inside: tuple[str, ...] = ()
            for i, start, end in zip(
                order.tolist(), events.start[order].tolist(), events.end[order].tolist(), strict=True
            ):
                closed = False
                while open_ and open_[-1][0] <= start:
                    open_.pop()
                    closed = True
                if closed:
                    inside = tuple(name for _, name in open_)
                if open_:
                    found[i] = inside
                name = events.names[i].removeprefix(NODE)
                if "::" not in name or trait_of_operator(name) is Trait.ATTENTION:
                    open_.append((end, name))
                    inside = (*inside, name)
        return found
