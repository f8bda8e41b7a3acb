"""Where the time of a step goes: the traced steps' classes, on the scale of the steps that were timed without a profiler.

The profiler slows the host and hardly the kernels. So on a GPU kernels keep their times, and idle time is what is left of
the step as it was timed; what of that was waited for data or for other ranks comes first, since no profiler makes that
longer. On the CPU everything but the wait for data is slowed alike, and scaled alike. The rows add up to the step exactly.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles

import numpy as np

from dynotune.measure.evidence import Source
from dynotune.measure.kernel_classes import IDLE, Surroundings, Work
from dynotune.measure.timelines.rows import Segments, segments_of
from dynotune.profile.analysis.findings import Row
from dynotune.profile.analysis.floors import floors_of
from dynotune.profile.analysis.usual import quiet
from dynotune.profile.records.record import Record, TimedStep, Traced


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The step in rows, and what else the traces say."""

    seconds: float
    rows: tuple[Row, ...]
    hidden: float
    """Seconds of communication behind other work."""

    slowdown: float | None
    reads: Mapping[str, float]
    """Seconds a step in which the device had nothing to do for a wait of the host, by the wait."""

    kernels: tuple[tuple[str, Work, float, int], ...]
    unknown: tuple[tuple[str, float], ...]
    on_device: bool
    idle_within_trace: float | None = None
    """Seconds of a traced step, by its own clock, in which the device had nothing to do; None without a device's time line.
    The profiler's delays of the host are in it, which the rows leave out."""

    def row(self, work: Work) -> Row:
        return next((row for row in self.rows if row.work is work), Row(work, 0.0, 0.0, 0.0))

    def share(self, *works: Work) -> float:
        return sum(row.share for row in self.rows if row.work in works)


def breakdown_of(record: Record) -> Breakdown | None:
    """None where no step was traced."""
    if not record.traced:
        return None
    around = surroundings(record)
    on_device = any(has_kernels(one) for one in record.traced)
    lines = [segments_of(one.events, one.where, around, on_device) for one in record.traced]
    n = len(lines)
    spent = _mean({work: line.by_work()[work] / 1e9 for work in Work} for line in lines)
    traced = sum(line.total for line in lines) / 1e9 / n
    step = timed_for(record, on_device, spent[Work.DATA])
    scaled = _on_device(spent, step) if on_device else _on_host(spent, step, _data_wait(record.timed))
    floors = floors_of(record, lines, on_device)
    rows = []
    for work, seconds in scaled.items():
        if seconds <= 0:
            continue
        floor, covered = floors.get(work, (None, 0.0))
        if floor is not None and not on_device and spent[work] > 0:
            floor = min(floor, seconds)  # the host's own overhead may be all that there is of a small operation
        rows.append(
            Row(work, seconds, seconds / step, 0.0 if work in IDLE else floor, 1.0 if work in IDLE else covered)
        )
    rows.sort(key=lambda row: -row.seconds)
    # Reads lie in the idle time of the host: what is left of that, and not of waits for data, which have their own row. For
    # what timed steps waited that were idle for longer, nobody has seen.
    still = min(1.0, scaled[Work.HOST] / spent[Work.HOST]) if on_device and spent[Work.HOST] > 0 else 0.0
    reads = Counter[str]()
    for line in lines:
        for name, took in line.reads.items():
            reads[name] += took
    kernels, unknown = _longest(record.traced, lines, n)
    return Breakdown(
        seconds=step,
        rows=tuple(rows),
        hidden=sum(line.hidden for line in lines) / 1e9 / n,
        slowdown=traced / step if step > 0 else None,
        reads={name: took / 1e9 / n * still for name, took in reads.most_common()},
        kernels=kernels,
        unknown=unknown,
        on_device=on_device,
        idle_within_trace=sum(spent[work] for work in IDLE) if on_device else None,
    )


def surroundings(record: Record) -> Surroundings:
    model = record.model
    tokens = frozenset(int(n) for traced in record.traced for n in traced.facts.get("tokens", ()))
    return Surroundings(model.head_places, model.vocabulary, model.adapter_ranks, model.hidden, tokens)


def has_kernels(traced: Traced) -> bool:
    return any(kind is Source.KERNEL for kind in traced.events.kinds)


LEAST_TOLD, MOST_TOLD = 8, 500
"""Steps from which on it is asked how they grow with tokens, and that are compared at most, each with each."""

UNEVEN = 0.1
"""Half the middle half of the steps' tokens over their median, from which on it is seen how a step grows with them."""


def timed_for(record: Record, on_device: bool, waited: float = 0.0) -> float:
    """Seconds that a step like the traced ones took without the profiler: by real tokens where all are known.

    Work grows with tokens; a wait for data need not. Where host and device are one, a step is its work and its waits, one
    after the other, and only the work is scaled. waited: seconds for data in a traced step, for steps whose wait is not
    known."""
    steps = quiet(record.timed)
    if not steps:
        return sum(one.where.step[1] - one.where.step[0] for one in record.traced) / 1e9 / len(record.traced)
    tokens = [float(one.real_tokens) for one in steps if one.real_tokens]
    traced = [float(one.real_tokens) for one in record.traced if one.real_tokens]
    if len(tokens) < len(steps) or len(traced) < len(record.traced):
        return median(one.seconds for one in steps)
    known = _data_wait(steps)
    usual = waited if known is None else known
    waits = [0.0 if on_device else min(usual if one.data_wait is None else one.data_wait, one.seconds) for one in steps]
    works = [one.seconds - wait for one, wait in zip(steps, waits, strict=True)]
    slope = _a_token(works, tokens)
    goal = fmean(traced)
    return median(waits) + median(max(0.0, work + slope * (goal - n)) for work, n in zip(works, tokens, strict=True))


def _a_token(works: Sequence[float], tokens: Sequence[float]) -> float:
    """Seconds that one token more takes: the median over pairs of steps (Sen, Journal of the American Statistical
    Association 63, 1968) where steps differ enough to tell, else all of a step's seconds by its tokens. What an update or
    launching takes does not grow."""
    pace = median(work / n for work, n in zip(works, tokens, strict=True))
    low, middle, high = quantiles(tokens, n=4) if len(tokens) >= LEAST_TOLD else (0.0, 1.0, 0.0)
    if (high - low) / 2 < UNEVEN * middle:
        return pace
    every = -(-len(tokens) // MOST_TOLD)
    n, seconds = np.array(tokens[::every]), np.array(works[::every])
    first, second = np.triu_indices(len(n), 1)
    apart = n[second] - n[first]
    told = apart != 0
    slope = float(np.median((seconds[second] - seconds[first])[told] / apart[told]))
    return min(max(slope, 0.0), pace)


def _data_wait(timed: Iterable[TimedStep]) -> float | None:
    waits = [one.data_wait for one in quiet(timed) if one.data_wait is not None]
    return median(waits) if waits else None


def _on_device(spent: Mapping[Work, float], step: float) -> dict[Work, float]:
    busy = sum(took for work, took in spent.items() if work not in IDLE)
    if busy >= step:
        return {work: 0.0 if work in IDLE else took * step / busy for work, took in spent.items()}
    left = step - busy
    data = min(spent[Work.DATA], left)
    ranks = min(spent[Work.RANKS], left - data)
    return {**spent, Work.DATA: data, Work.RANKS: ranks, Work.HOST: left - data - ranks}


def _on_host(spent: Mapping[Work, float], step: float, data_wait: float | None) -> dict[Work, float]:
    data = min(spent[Work.DATA] if data_wait is None else data_wait, step)
    rest = sum(took for work, took in spent.items() if work is not Work.DATA)
    scale = (step - data) / rest if rest > 0 else 0.0
    scaled = {work: took * scale for work, took in spent.items()}
    return {**scaled, Work.DATA: data if rest > 0 else step}


def _longest(
    traced: Iterable[Traced], lines: list[Segments], n: int
) -> tuple[tuple[tuple[str, Work, float, int], ...], tuple[tuple[str, float], ...]]:
    took, count = Counter[tuple[str, Work]](), Counter[tuple[str, Work]]()
    for one, line in zip(traced, lines, strict=True):
        classes = dict(zip(line.event.tolist(), line.work, strict=True))
        for i, nanoseconds in line.by_event().items():
            key = one.events.names[i], classes[i]
            took[key] += nanoseconds
            count[key] += 1
    kernels = tuple((name, work, ns / 1e9 / n, count[name, work] // n) for (name, work), ns in took.most_common(20))
    unknown = tuple(
        (name, ns / 1e9 / n) for (name, work), ns in took.most_common() if work is Work.OTHER
    )[:20]  # fmt: skip
    return kernels, unknown


def _mean(each: Iterable[Mapping[Work, float]]) -> dict[Work, float]:
    every = list(each)
    return {work: sum(one[work] for one in every) / len(every) for work in Work}
