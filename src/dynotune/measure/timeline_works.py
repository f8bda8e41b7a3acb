"""The class of work of each kernel, copy and operator of a traced step, by what surrounds it on the host."""

import re

import numpy as np

from dynotune.measure.evidence import Phase, Source
from dynotune.measure.kernel_classes import Ran, Surroundings, Trait, Work, trait_of_operator, work_of
from dynotune.measure.trace_attribution import PHASES, Attribution
from dynotune.measure.trace_events import NODE, Events

_UPDATING = re.compile(r"^Optimizer\.(step|zero_grad)#|clip_grad")


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
                if "::" not in name or trait_of_operator(name) is Trait.ATTENTION:
                    open_.append((int(events.end[i]), name))
        return found
