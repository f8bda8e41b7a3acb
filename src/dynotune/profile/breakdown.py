"""Where the time of a step goes: the traced steps' classes, on the scale of the steps that were timed without a profiler.

The profiler slows the host and hardly the kernels. So on a GPU kernels keep their times, and idle time is what is left of
the step as it was timed; what of that was waited for data or for other ranks comes first, since no profiler makes that
longer. On the CPU everything but the wait for data is slowed alike, and scaled alike. The rows add up to the step exactly.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from dynotune.measure.evidence import Source
from dynotune.measure.kernel_classes import IDLE, Surroundings, Work
from dynotune.measure.rooflines import Rates, attention_flops, cost_of
from dynotune.measure.timeline import Segments, segments_of
from dynotune.profile.findings import Row
from dynotune.profile.record import Record, TimedStep, Traced

KNOWN = 0.5
"""Share of a class's time that must have a floor for the class to have one."""

_STATES = {"Adam": 7, "SGD": 3, "Adagrad": 5, "RMSprop": 5}
"""Times that an optimizer reads or writes a trained value or one of its states, at least."""

_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


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
    step = timed_for(record)
    scaled = _on_device(spent, step) if on_device else _on_host(spent, step, _data_wait(record.timed))
    floors = _floors(record, lines, on_device)
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


def timed_for(record: Record) -> float:
    """Seconds that a step like the traced ones took without the profiler: by real tokens where all are known."""
    steps = quiet(record.timed)
    if not steps:
        return sum(one.where.step[1] - one.where.step[0] for one in record.traced) / 1e9 / len(record.traced)
    tokens = [one.real_tokens for one in steps]
    traced = [one.real_tokens for one in record.traced]
    if all(tokens) and all(traced):
        paces = [one.seconds / one.real_tokens for one in steps if one.real_tokens]
        return median(paces) * sum(n for n in traced if n) / len(traced)
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


def _floors(record: Record, lines: list[Segments], on_device: bool) -> dict[Work, tuple[float | None, float]]:
    """By class: seconds a step at least, and the share of its time that this is known of."""
    rates = Rates(record.ceilings.matmul, record.ceilings.memory)
    least, known, spent = defaultdict[Work, float](float), Counter[Work](), Counter[Work]()
    for traced, line in zip(record.traced, lines, strict=True):
        events, operators = traced.events, traced.where.operator
        classes = dict(zip(line.event.tolist(), line.work, strict=True))
        counted: set[int] = set()
        for i, took in line.by_event().items():
            work = classes[i]
            spent[work] += took
            if events.kinds[i] is Source.COPY and record.ceilings.to_device and "HtoD" in events.names[i]:
                least[work] += int(events.bytes[i]) / record.ceilings.to_device * 1e9
                known[work] += took
                continue
            caller = (int(operators[i]) if operators[i] >= 0 else i) if on_device else i
            cost = cost_of(events.names[caller], events.shapes[caller], events.dtypes[caller])
            seconds = cost.seconds(rates) if cost is not None else None
            if seconds is None:
                continue
            known[work] += took
            if caller not in counted:
                counted.add(caller)
                least[work] += seconds * 1e9
    n = len(lines)
    found: dict[Work, tuple[float | None, float]] = {}
    for work, took in spent.items():
        covered = known[work] / took if took else 0.0
        found[work] = (least[work] / 1e9 / n / covered if covered >= KNOWN else None, covered)
    found[Work.ATTENTION] = _attention(record), 1.0
    found[Work.OPTIMIZER] = _optimizer(record), 1.0
    return found


def _attention(record: Record) -> float | None:
    model, rates = record.model, record.ceilings.matmul
    rate = rates.get(model.asked_precision or "float32") or rates.get("bfloat16")
    lengths = [n for one in record.traced for n in one.lengths]
    if not lengths or not rate or model.layers is None or model.heads is None or model.head_dim is None:
        return None
    flops = attention_flops(lengths, model.layers, model.heads, model.head_dim, backward=True)
    return flops / len(record.traced) / rate


def _optimizer(record: Record) -> float | None:
    times = next((n for name, n in _STATES.items() if name in record.optimizer), None)
    if times is None or not record.ceilings.memory:
        return None
    moved = sum(one.parameters * _SIZES.get(one.dtype, 4) for one in record.model.weights if one.trained)
    return times * moved / record.ceilings.memory


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
