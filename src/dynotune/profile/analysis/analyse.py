"""From what was observed of a run to what it means: no device, no clock, no file is touched here."""

from statistics import median, quantiles

from dynotune.measure.kernel_classes import IDLE, Work
from dynotune.profile.analysis.breakdown import Breakdown, breakdown_of
from dynotune.profile.analysis.detect import found_in, step_seconds
from dynotune.profile.analysis.expected import expectation
from dynotune.profile.analysis.findings import Finding, Findings
from dynotune.profile.analysis.placement import cannot_know, placement
from dynotune.profile.analysis.remedies import ranked, ruled_out
from dynotune.profile.analysis.usual import quiet
from dynotune.profile.records.record import Record

WHOLE = (Work.GEMM, Work.ATTENTION, Work.HEAD)
"""Classes without whose floors there is no floor of the whole."""

NEAR = 1.15
"""Times its floor up to which a class is called near it."""

BOTTLENECK = "The bottleneck: "
"""Before the sentence of a finding that is one."""


def analyse(record: Record) -> Findings:
    """Raises nothing: what is missing is said in `cannot_know`."""
    breakdown = breakdown_of(record)
    found = found_in(record, breakdown)
    step = step_seconds(record, breakdown)
    remedies = ranked(record, breakdown, found)
    real = [one.real_tokens for one in record.timed]
    seconds = sum(one.seconds for one in record.timed)
    rate = sum(n for n in real if n) / seconds if seconds and all(real) else None
    processed = [one.processed_tokens for one in record.timed]
    fill = sum(n for n in real if n) / sum(n for n in processed if n) if all(real) and all(processed) and real else None
    floor = floor_rate(record, breakdown, rate)
    expected, no_expectation = expectation(record, rate)
    return Findings(
        title=_title(record),
        step_seconds=step,
        rows=breakdown.rows if breakdown else (),
        bottleneck=bottleneck(breakdown, found),
        found=tuple(found),
        remedies=remedies,
        placement=placement(record),
        cannot_know=cannot_know(record, breakdown),
        ruled_out=ruled_out(record, breakdown),
        hidden_communication=breakdown.hidden if breakdown else 0.0,
        tokens_per_second=rate,
        fill=fill,
        floor_tokens_per_second=floor,
        expected=expected,
        no_expectation=no_expectation,
        steps=len(record.timed),
        spread=_spread(record),
        profiler_slowdown=breakdown.slowdown if breakdown else None,
        idle_within_trace=breakdown.idle_within_trace if breakdown else None,
        unknown_kernels=breakdown.unknown if breakdown else (),
        memory=_memory(record),
        warm_up=_warm_up(record),
        kernels=breakdown.kernels if breakdown else (),
        on_device=breakdown.on_device if breakdown else record.environment.device == "cuda",
    )


def bottleneck(breakdown: Breakdown | None, found: list[Finding]) -> str:
    """One sentence: the dearest finding, or else the largest class and how far it is from its floor."""
    dear = [one for one in found if one.seconds > 0]
    if dear and (breakdown is None or dear[0].seconds >= 0.05 * breakdown.seconds):
        return f"{BOTTLENECK}{dear[0].sentence}."
    if breakdown is None or not breakdown.rows:
        return "Without a trace it cannot be told what the step's time goes to; nothing in its timing stands out."
    row = breakdown.rows[0]
    share = f"{100 * row.share:.0f} % of it {label(row.work, breakdown.on_device)}"
    if row.work in IDLE:
        return f"The bottleneck: {100 * row.share:.0f} % of the step is {label(row.work, breakdown.on_device)}."
    if row.floor is None or row.floor <= 0:
        return f"The step is bound by its own work: {share}; its floor is not known."
    if row.beaten:
        return f"The step is bound by its own work: {share}; its floor was measured under other settings."
    times = row.seconds / row.floor
    near = "near" if times <= NEAR else "away from"
    return (
        f"The step is bound by its own work: {share}, at {times:.2f} times its floor ({near} what the device can do)."
    )


def label(work: Work, on_device: bool) -> str:
    """Of a class in words: on a CPU nothing is idle while the host works."""
    return "Python and launching" if work is Work.HOST and not on_device else str(work)


def floor_rate(record: Record, breakdown: Breakdown | None, rate: float | None) -> float | None:
    """Real tokens a second if every class ran at its floor and nothing was idle."""
    if breakdown is None or rate is None:
        return None
    if any(row.floor is None or row.beaten for row in breakdown.rows if row.work in WHOLE):
        return None
    known = sum(row.floor if row.floor is not None and not row.beaten else row.seconds for row in breakdown.rows)
    tokens = [one.real_tokens for one in record.traced if one.real_tokens]
    # Of the traced steps themselves: `rate` has what slow steps and pauses between others cost in it.
    a_step = sum(tokens) / len(tokens) if len(tokens) == len(record.traced) else rate * breakdown.seconds
    return a_step / known if known > 0 else None


def _title(record: Record) -> str:
    model, environment = record.model, record.environment
    parts = [f"{record.method} by {record.trainer}"]
    if model.name:
        parts.append(f"{model.name} of {_count(model.parameters)} parameters")
    if model.adapter_ranks:
        parts.append("LoRA r=" + ", ".join(map(str, model.adapter_ranks)))
    device = environment.machine.get("device") or environment.device
    parts.append(f"{environment.world} x {device}" if environment.world > 1 else str(device))
    return ", ".join(parts)


def _count(n: int) -> str:
    for size, word in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.3g} {word}"
    return str(n)


def _spread(record: Record) -> float | None:
    steps = quiet(record.timed)
    paces = [one.seconds / (one.real_tokens or 1) for one in steps] if all(one.real_tokens for one in steps) else [
        one.seconds for one in steps
    ]  # fmt: skip
    if len(paces) < 4:
        return None
    low, middle, high = quantiles(paces, n=4)
    return (high - low) / 2 / median(paces) if middle > 0 else None


CACHED = 0.2
"""Share of the device's memory above which it is said that the allocator keeps more than any tensor held."""


def _memory(record: Record) -> str:
    memory = record.memory
    if memory.peak_allocated is None:
        return ""
    gib = 1 << 30
    text = f"peak {memory.peak_allocated / gib:.1f} GiB allocated"
    if memory.peak_reserved is not None:
        text += f", {memory.peak_reserved / gib:.1f} reserved"
    text += f" of {memory.total / gib:.0f}" if memory.total else ""
    kept = (memory.peak_reserved or 0) - memory.peak_allocated
    if memory.total and kept > CACHED * memory.total:
        text += f", at least {kept / gib:.1f} of them unused (the allocator keeps them for other sizes)"
    return text


def _warm_up(record: Record) -> str:
    warm = record.warm_up
    if not warm.steps:
        return ""
    text = f"{warm.steps} steps, {warm.seconds:.1f} s"
    if warm.events:
        text += f" ({'; '.join(warm.events[:3])})"
    return f"{text}. {warm.note}" if warm.note else text
