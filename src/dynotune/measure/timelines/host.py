"""The line of time of the thread that trains, where a step ran on the CPU: its innermost operator, or nothing."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dynotune.measure.evidence import Source
from dynotune.measure.kernel_classes import Trait, Work, trait_of_operator
from dynotune.measure.timelines.segments import LOADING, WAITING, Segments, marked
from dynotune.measure.traces.attribution import Attribution
from dynotune.measure.traces.events import Events


def of_host(events: Events, where: Attribution, classes: Mapping[int, Work]) -> Segments:
    """By the innermost operator of the thread that trains; where it is in none, by those of other threads."""
    begin, end = where.step
    lines = _threads(events, where, classes)
    data, ranks = marked(events, LOADING), marked(events, WAITING)
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

        spans = zip(order.tolist(), events.start[order].tolist(), events.end[order].tolist(), strict=True)
        for i, start, end in spans:
            # A function or node of autograd says nothing of its own time: what encloses it does not either.
            if trait_of_operator(events.names[i]) is Trait.UNKNOWN:
                continue
            close_until(start, times, values, open_)
            open_.append((end, i))
            times.append(start)
            values.append(i)
        if open_:
            close_until(max(end for end, _ in open_), times, values, open_)
        ran = int((events.end[here] - events.start[here]).sum())
        found.append((ran, np.array(times, np.int64), np.array(values, np.int64)))
    found.sort(key=lambda line: -line[0])
    return [(times, values) for _, times, values in found]
