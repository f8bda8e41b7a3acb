"""Where the time of a step goes: the traced steps' classes, on the scale of the steps that were timed without a profiler.

The profiler slows the host and hardly the kernels. So on a GPU kernels keep their times, and idle time is what is left of
the step as it was timed; what of that was waited for data or for other ranks comes first, since no profiler makes that
longer. On the CPU everything but the wait for data is slowed alike, and scaled alike. The rows add up to the step exactly.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from dynotune.measure.evidence import Source
from dynotune.measure.kernel_classes import IDLE, Surroundings, Work
from dynotune.measure.timeline import Segments, segments_of
from dynotune.profile.findings import Row
from dynotune.profile.floors import floors_of
from dynotune.profile.record import Record, TimedStep, Traced


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The step in rows, and what else the traces say."""

    seconds: float
    rows: tuple[Row, ...]
    hidden: float
    """Seconds of communication behind other work."""

    slowdown: float | None
    reads: Mapping[str, float]
    """Seconds a step in which the device had nothing to do behind a wait of the host, by the wait."""

    kernels: tuple[tuple[str, Work, float, int], ...]
    unknown: tuple[tuple[str, float], ...]
    on_device: bool

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
    step = timed_for(record, on_device)
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
    idle = sum(spent[work] for work in IDLE)
    still = sum(scaled[work] for work in IDLE) / idle if idle > 0 else 0.0
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
    )


def surroundings(record: Record) -> Surroundings:
    model = record.model
    return Surroundings(model.head_places, model.vocabulary, model.adapter_ranks, model.hidden)


def has_kernels(traced: Traced) -> bool:
    return any(kind is Source.KERNEL for kind in traced.events.kinds)


def quiet(timed: Iterable[TimedStep]) -> list[TimedStep]:
    """Steps in which nothing but training happened; all of them where there are no such."""
    every = list(timed)
    return [one for one in every if not one.happened and not one.compilations] or every


def timed_for(record: Record, on_device: bool) -> float:
    """Seconds that a step like the traced ones took without the profiler: by real tokens where all are known.

    Work grows with tokens; a wait for data need not. Where host and device are one, a step is its work and its waits, one
    after the other, and only the work is scaled."""
    steps = quiet(record.timed)
    if not steps:
        return sum(one.where.step[1] - one.where.step[0] for one in record.traced) / 1e9 / len(record.traced)
    tokens = [one.real_tokens for one in steps]
    traced = [one.real_tokens for one in record.traced]
    if all(tokens) and all(traced):
        waits = [0.0 if on_device else min(one.data_wait or 0.0, one.seconds) for one in steps]
        paces = [
            (one.seconds - wait) / one.real_tokens
            for one, wait in zip(steps, waits, strict=True)
            if one.real_tokens
        ]  # fmt: skip
        return median(waits) + median(paces) * sum(n for n in traced if n) / len(traced)
    return median(one.seconds for one in steps)


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
