"""What holds a run back: one function a cause, each from the record and its breakdown to a finding or nothing.

Thresholds stand in each function's file-level constants: below them a cause is noise or costs less than the reader's time.
"""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median

from dynotune.measure.evidence import Phase, Source
from dynotune.measure.kernel_classes import IDLE, Work
from dynotune.measure.traces.attribution import PHASES
from dynotune.measure.traces.facts import READ_ON_HOST, WAIT
from dynotune.printable import printable
from dynotune.profile.analysis import attention
from dynotune.profile.analysis.breakdown import Breakdown
from dynotune.profile.analysis.cycles import periodic
from dynotune.profile.analysis.findings import Finding
from dynotune.profile.analysis.in_words import ms, percent
from dynotune.profile.analysis.ranks import WAIT_SHARE, waiting_for_ranks
from dynotune.profile.analysis.recompiling import recompiling
from dynotune.profile.analysis.remedies import remedy
from dynotune.profile.analysis.slow_steps import OFTEN, slow_steps
from dynotune.profile.analysis.usual import quiet
from dynotune.profile.records.precision import full_precision_share
from dynotune.profile.records.record import Record

LEAST_WAIT = 2e-4
"""Seconds: a loader that hands out what is ready already takes some of them."""

READ_SHARE = 0.01
READ_LINES = 3
HOST_SHARE = 0.10
PRECISION_SHARE = 0.05
LOW_FILL = 0.8
UPDATE_SHARE = 0.03
UPDATE_LAUNCHES = 60
"""Kernels in an update; a fused one has some for each group of tensors, whatever their number."""

PAGEABLE_SHARE = 0.01

Detector = Callable[[Record, Breakdown | None], Iterator[Finding]]


def found_in(record: Record, breakdown: Breakdown | None) -> list[Finding]:
    """Dearest first."""
    every = [finding for detector in DETECTORS for finding in detector(record, breakdown)]
    return sorted(every, key=lambda one: -one.seconds)


def step_seconds(record: Record, breakdown: Breakdown | None) -> float:
    if breakdown is not None:
        return breakdown.seconds
    steps = quiet(record.timed)
    return median(one.seconds for one in steps) if steps else 0.0


def slow_loader(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    step = step_seconds(record, breakdown)
    if breakdown is not None:
        waits = breakdown.row(Work.DATA).seconds
    else:
        told = [one.data_wait for one in quiet(record.timed) if one.data_wait is not None]
        waits = fmean(told) if told else 0.0
    workers = record.environment.loader_workers
    ahead = "one worker makes" if workers == 1 else f"{workers} workers make"
    by = "" if workers is None else f"; {ahead} batches ahead"
    late, lost = _late(record)
    mean = fmean(one.seconds for one in record.timed) if record.timed else step
    if late >= OFTEN and lost > waits and lost >= LEAST_WAIT and lost / mean >= WAIT_SHARE:
        sentence = (
            f"{late} of {len(record.timed)} steps wait for data: {ms(lost)} of a mean step ({percent(lost / mean)}){by}"
        )
        yield Finding("slow-loader", sentence, lost, remedy(record, "slow-loader", lost, mean))
    elif waits >= LEAST_WAIT and waits / step >= WAIT_SHARE:
        sentence = f"waiting for data takes {ms(waits)} of each step ({percent(waits / step)}){by}"
        yield Finding("slow-loader", sentence, waits, remedy(record, "slow-loader", waits, step))


def _late(record: Record) -> tuple[int, float]:
    """Steps that wait for data beside most that do not, and what that costs in the mean of all: no more than they wait, nor
    than they take longer, since a device may work meanwhile."""
    told = [one for one in record.timed if one.data_wait is not None]
    if len(told) < 2 * OFTEN:
        return 0, 0.0
    wait, level = median(one.data_wait or 0.0 for one in told), median(one.seconds for one in told)
    lost = [max(0.0, min((one.data_wait or 0.0) - wait, one.seconds - level)) for one in told]
    return sum(one >= WAIT_SHARE * level for one in lost), sum(lost) / len(told)


def host_reads(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    """Values that the loop reads while a step runs (`.item()`): the device has nothing to do until the host goes on."""
    if breakdown is None:
        return
    count, where = _reads(record)
    where = _lines(record) or where
    cost = sum(breakdown.reads.values())
    step = breakdown.seconds
    if breakdown.on_device:
        if cost / step < READ_SHARE:
            return
        times = "once" if round(count) == 1 else f"{count:.0f} times"
        sentence = (
            f"the host waits for the device {times} a step{where}, and then the device for the host:"
            f" {ms(cost)} a step ({percent(cost / step)})"
        )
        yield Finding("host-reads", sentence, cost, remedy(record, "host-reads", cost, step))
    elif count >= 1 and record.environment.world == 1:  # what ranks agree on is read too
        values = "1 value a step goes from a tensor" if count == 1 else f"{count:.0f} values a step go from tensors"
        sentence = f"{values} to Python (`.item()`){where}: free on a CPU, a wait for all work that is queued on a GPU"
        yield Finding("host-reads", sentence, 0.0, remedy(record, "host-reads", 0.0, step))


def _lines(record: Record) -> str:
    """The lines that read, where the record has them: the script's own first, else those of libraries."""
    every = [one for traced in record.traced[-1:] for one in traced.facts.get("reads", ())]
    own = [one for one in every if one.get("own")]
    named = [f"{printable(str(one.get('at')), 80)} x {one.get('count')}" for one in (own or every)[:READ_LINES]]
    return f" (at {', '.join(named)}{', and more' * (len(own or every) > len(named))})" if named else ""


def _reads(record: Record) -> tuple[float, str]:
    """Per step, outside of the update; and where, in words, if it is always in one place."""
    total, places = 0, set[str]()
    for one in record.traced:
        events = one.events
        on_device = any(kind is Source.RUNTIME for kind in events.kinds)
        for i, name in enumerate(events.names):
            if not one.where.in_step[i] or PHASES[one.where.phase[i]] is Phase.UPDATE:
                continue
            wait = events.kinds[i] is Source.RUNTIME and WAIT.match(name) if on_device else name == READ_ON_HOST
            if wait and not (not on_device and _in_update(one.events, int(events.start[i]))):
                total += 1
                places.add(one.where.places[one.where.place[i]] or str(PHASES[one.where.phase[i]]))
    said = {"other": "between the passes"}
    where = next(iter(places)) if len(places) == 1 else ""
    return total / max(1, len(record.traced)), f", {said.get(where, f'in {where}')}" if where else ""


def _in_update(events: object, at: int) -> bool:
    names, start, end = events.names, events.start, events.end  # type: ignore[attr-defined]
    return any(
        name.startswith("Optimizer.step#") and start[i] <= at < end[i]
        for i, name in enumerate(names)
        if name.startswith("Optimizer.")
    )


def full_precision(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    share = full_precision_share(record)
    if breakdown is None or share < PRECISION_SHARE:
        return
    asked = record.model.asked_precision
    rates = record.ceilings.matmul
    faster = rates[asked] / rates["float32"] if rates.get(asked) and rates.get("float32") else 2.0
    products = sum(breakdown.row(work).seconds for work in (Work.GEMM, Work.LORA, Work.HEAD))
    more = share * max(0.0, faster - 1)  # by so much of its FLOPs in 16 bits
    saves = products * more / (1 + more)
    sentence = f"{asked} was asked for and {percent(share)} of the FLOPs of matrix products ran in float32"
    name = "full-precision-products"
    yield Finding(name, sentence, saves, remedy(record, name, saves, breakdown.seconds))


def low_fill(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    real = sum(one.real_tokens or 0 for one in record.timed if one.processed_tokens)
    processed = sum(one.processed_tokens or 0 for one in record.timed if one.real_tokens)
    if not processed or real / processed >= LOW_FILL:
        return
    step = step_seconds(record, breakdown)
    by_token = 1.0 if breakdown is None else 1 - breakdown.share(Work.OPTIMIZER, Work.COMMUNICATION, *IDLE)
    saves = step * by_token * (1 - real / processed)
    sentence = f"{percent(1 - real / processed)} of the processed tokens are padding (fill {percent(real / processed)})"
    yield Finding("low-fill", sentence, saves, remedy(record, "low-fill", saves, step))


def unfused_optimizer(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    if breakdown is None or "(fused)" in record.optimizer:
        return
    row, step = breakdown.row(Work.OPTIMIZER), breakdown.seconds
    many = "for-loop" in record.optimizer or _update_calls(record, breakdown.on_device) > UPDATE_LAUNCHES
    if row.share < UPDATE_SHARE or not many:
        return
    saves = row.above if row.floor is not None else row.seconds / 2
    calls = _update_calls(record, breakdown.on_device)
    what = "kernels" if breakdown.on_device else "operators"
    sentence = (
        f"the optimizer ({record.optimizer or 'its kind is not known'}) takes {ms(row.seconds)} of each step"
        f" ({percent(row.share)}) in {calls:.0f} {what}: it is not fused"
    )
    yield Finding("unfused-optimizer", sentence, saves, remedy(record, "unfused-optimizer", saves, step))


def _update_calls(record: Record, on_device: bool) -> float:
    """Kernels, or on the CPU operators, of an update."""
    wanted = Source.KERNEL if on_device else Source.OPERATOR
    count = 0
    for one in record.traced:
        events = one.events
        spans = [
            (int(events.start[i]), int(events.end[i]))
            for i, name in enumerate(events.names)
            if name.startswith("Optimizer.step#") and events.kinds[i] not in (Source.KERNEL, Source.COPY)
        ]
        for i, kind in enumerate(events.kinds):
            if kind is not wanted or not one.where.in_step[i]:
                continue
            operator = int(one.where.operator[i]) if on_device else i
            at = int(events.start[operator if operator >= 0 else i])
            if PHASES[one.where.phase[i]] is Phase.UPDATE or any(a <= at < b for a, b in spans):
                count += 1
    return count / max(1, len(record.traced))


def weights_elsewhere(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    """Weights that do not lie on the device that computes, or a GPU that nobody uses."""
    total = record.model.parameters
    step = step_seconds(record, breakdown)
    on_cpu = [one for one in record.model.weights if not one.device.startswith("cuda")]
    if record.environment.device == "cuda" and on_cpu:
        share = sum(one.parameters for one in on_cpu) / total
        where = ", ".join(sorted({one.device for one in on_cpu}))
        copies = breakdown.row(Work.COPIES).seconds if breakdown is not None else 0.0
        sentence = f"{percent(share)} of the weights lie on {where} and not on the GPU that trains"
        yield Finding("weights-elsewhere", sentence, copies, remedy(record, "weights-elsewhere", copies, step))
    elif record.environment.device == "cpu" and record.environment.gpus:
        n = record.environment.gpus
        sees = "one GPU that PyTorch sees is" if n == 1 else f"{n} GPUs that PyTorch sees are"
        sentence = f"the weights are on the CPU, and {sees} not used"
        yield Finding("weights-elsewhere", sentence, step, remedy(record, "weights-elsewhere", 0.0, step))


def host_bound(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    if breakdown is None or not breakdown.on_device:
        return
    idle = breakdown.row(Work.HOST).seconds - sum(breakdown.reads.values())
    if idle / breakdown.seconds < HOST_SHARE:
        return
    share = percent(idle / breakdown.seconds)
    sentence = f"the GPU waits {ms(idle)} of each step ({share}) for the host to launch: host-bound"
    yield Finding("host-bound", sentence, idle, remedy(record, "host-bound", idle, breakdown.seconds))


def pageable_copies(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    if breakdown is None or not breakdown.on_device:
        return
    took = 0
    for one in record.traced:
        for i, name in enumerate(one.events.names):
            if name.startswith("Memcpy HtoD") and "Pageable" in name and one.where.in_step[i]:
                took += int(one.events.end[i] - one.events.start[i])
    seconds = took / 1e9 / len(record.traced)
    if seconds / breakdown.seconds >= PAGEABLE_SHARE:
        sentence = f"batches are copied from memory that is not pinned: {ms(seconds)} of each step"
        yield Finding(
            "pageable-copies", sentence, seconds, remedy(record, "pageable-copies", seconds, breakdown.seconds)
        )


def memory_retries(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    if record.memory.retries:
        sentence = (
            f"the allocator gave memory back and asked again {record.memory.retries} times: it is nearly full or torn"
        )
        step = step_seconds(record, breakdown)
        yield Finding("allocator-retries", sentence, 0.0, remedy(record, "allocator-retries", 0.0, step))


def slow_attention(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    """Attention that computes pairs of tokens of different documents, or writes its weights out."""
    if breakdown is None:
        return
    for name, sentence, saves in attention.slow_paths(record, breakdown):
        yield Finding(name, sentence, saves, remedy(record, name, saves, breakdown.seconds))


DETECTORS: Sequence[Detector] = (
    slow_loader, host_reads, full_precision, low_fill, recompiling, unfused_optimizer, weights_elsewhere, host_bound,
    waiting_for_ranks, pageable_copies, memory_retries, slow_attention, slow_steps, periodic,
)  # fmt: skip
