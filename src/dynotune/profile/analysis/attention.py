"""Attention that does more than its documents need, and what leaving that would save.

What packed attention takes on a GPU was measured (`measured/attention.json`), so the saving is predicted: the time now less
what the documents' own pairs take at the rate of a kernel that only computes those. The masks that are made, and the copies
of keys and values for each query head, are saved besides; they are in other classes and not in the figure.
"""

import re
from collections.abc import Iterator

from dynotune.measure.kernel_classes import Work
from dynotune.measure.rooflines import attention_flops
from dynotune.profile.analysis.breakdown import Breakdown
from dynotune.profile.analysis.measured import attention_rate
from dynotune.profile.records.record import Record
from dynotune.speedups.absences import dense_masks, math_attention

KERNELS = {True: ("fa3", "varlen"), False: ("varlen",)}
"""Whose rate is taken: for a run of ours, and for one of transformers', whose `flash_attention_2` is the second."""


def slow_paths(record: Record, breakdown: Breakdown) -> Iterator[tuple[str, str, float]]:
    """(name, sentence, seconds of a step that can be saved)."""
    device = record.environment.device
    for name, absent in (("dense-mask", dense_masks()), ("attention-written-out", math_attention())):
        seen = next((what for one in record.traced if (what := absent.found(one.evidence(device)))), None)
        if seen is None:
            continue
        takes = f"attention takes {1e3 * breakdown.row(Work.ATTENTION).seconds:,.3g} ms of a step"
        if name == "dense-mask":
            packed = not is_padded(record)
            name = name if packed else "padding-mask"
            why = "keep documents apart that lie side by side" if packed else "leave padding out"
            seen = f"it gets a value for each pair of tokens, to {why}, which no flash kernel takes: {_first_of(seen)}"
        yield name, f"{absent.what}: {takes}; {seen}", saving(record, breakdown)
        return


def _first_of(seen: str) -> str:
    """The most frequent of the events that an absence names."""
    first = re.match(r".*?\) x \d+", seen)
    return f"{first[0]} and others" if first is not None and first[0] != seen else seen


def is_padded(record: Record) -> bool:
    """Whether the traced steps hold padding, as far as that is known."""
    return any(
        one.real_tokens is not None and one.processed_tokens is not None and one.real_tokens < one.processed_tokens
        for one in record.traced
    )


def saving(record: Record, breakdown: Breakdown) -> float:
    """Seconds of a step, at most the time of attention itself."""
    row, model, device = breakdown.row(Work.ATTENTION), record.model, record.environment.machine.get("device", "")
    lengths = [n for one in record.traced for n in one.lengths]
    if not lengths or model.layers is None or model.heads is None or model.head_dim is None:
        return row.above if row.floor is not None else row.seconds / 2
    rate = attention_rate(str(device), KERNELS[record.trainer == "dynotune"], lengths, model.head_dim)
    if rate is None:
        return row.above if row.floor is not None else row.seconds / 2
    flops = attention_flops(lengths, model.layers, model.heads, model.head_dim, backward=True) / len(record.traced)
    return max(0.0, row.seconds - flops / (rate.tflops * 1e12))
