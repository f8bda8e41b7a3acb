"""The least seconds of each class of a step: what its operators need, at the rates that the device was seen to have.

One call may launch kernels of several classes: cuBLAS clears a workspace before a product whose work it splits. What the
call needs belongs to the class that most of its kernels' time is in.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from dynotune.measure.evidence import Source
from dynotune.measure.kernel_classes import Work
from dynotune.measure.rooflines import MOVED, Cost, Rates, attention_bytes, attention_flops, cost_of, moved_by
from dynotune.measure.timelines.rows import Segments
from dynotune.measure.traces.events import Events
from dynotune.profile.records.record import Record

KNOWN = 0.5
"""Share of a class's time that must have a floor for the class to have one."""

_STATES = {"Adam": 7, "SGD": 3, "Adagrad": 5, "RMSprop": 5}
"""Times that an optimizer reads or writes a trained value or one of its states, at least."""

_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


def floors_of(record: Record, lines: Sequence[Segments], on_device: bool) -> dict[Work, tuple[float | None, float]]:
    """By class: seconds a step at least (None: not known), and the share of its time that this is known of.

    lines: of `record.traced`, in order. on_device: whether they are a GPU's.
    """
    rates = Rates(record.ceilings.matmul, record.ceilings.memory)
    least, known, spent = defaultdict[Work, float](float), Counter[Work](), Counter[Work]()
    for traced, line in zip(record.traced, lines, strict=True):
        events, operators = traced.events, traced.where.operator
        classes = dict(zip(line.event.tolist(), line.work, strict=True))
        calls: dict[int, Counter[Work]] = defaultdict(Counter)
        for i, took in line.by_event().items():
            spent[classes[i]] += took
            caller = int(operators[i]) if on_device and operators[i] >= 0 else i
            alone = _of_kernel(record, events, i, caller, rates)
            if alone is not None:
                least[classes[i]] += alone
                known[classes[i]] += took
            else:
                calls[caller][classes[i]] += took
        for caller, times in calls.items():
            cost = cost_of(events.names[caller], events.shapes[caller], events.dtypes[caller])
            seconds = cost.seconds(rates) if cost is not None else None
            if seconds is None:
                continue
            known.update(times)
            least[times.most_common(1)[0][0]] += seconds
    n = len(lines)
    found: dict[Work, tuple[float | None, float]] = {}
    for work, took in spent.items():
        covered = known[work] / took if took else 0.0
        found[work] = (least[work] / n / covered if covered >= KNOWN else None, covered)
    found[Work.ATTENTION] = _attention(record), 1.0
    found[Work.OPTIMIZER] = _optimizer(record), 1.0
    return found


def _of_kernel(record: Record, events: Events, i: int, caller: int, rates: Rates) -> float | None:
    """Seconds of what is known by itself, and not by the operator that called it."""
    if events.kinds[i] is Source.COPY and record.ceilings.to_device and "HtoD" in events.names[i]:
        return int(events.bytes[i]) / record.ceilings.to_device
    if events.names[i] in MOVED:
        cost = moved_by(events.names[i], events.shapes[caller], events.dtypes[caller])
        return cost.seconds(rates) if cost is not None else None
    return None


def _attention(record: Record) -> float | None:
    """Of the documents' own pairs of tokens, or of the tensors that must be moved for them, where what several sequences
    begin with stands once. Where the number of key and value heads is not known, one is the least."""
    model, rates = record.model, record.ceilings.matmul
    asked = model.asked_precision or "float32"
    precision = asked if rates.get(asked) else "bfloat16"
    lengths = [n for one in record.traced for n in one.lengths]
    if not lengths or not rates.get(precision) or model.layers is None or model.heads is None or model.head_dim is None:
        return None
    tokens = sum(int(one.facts.get("laid_out_tokens") or sum(one.lengths)) for one in record.traced)
    flops = attention_flops(lengths, model.layers, model.heads, model.head_dim, backward=True)
    shape = model.layers, model.heads, model.kv_heads or 1, model.head_dim
    moved = attention_bytes(tokens, *shape, _SIZES.get(asked, 4), backward=True)
    seconds = Cost(flops, moved, precision).seconds(Rates(rates, record.ceilings.memory))
    return seconds / len(record.traced) if seconds is not None else None


def _optimizer(record: Record) -> float | None:
    times = next((n for name, n in _STATES.items() if name in record.optimizer), None)
    if times is None or not record.ceilings.memory:
        return None
    moved = sum(one.parameters * _SIZES.get(one.dtype, 4) for one in record.model.weights if one.trained)
    return times * moved / record.ceilings.memory
