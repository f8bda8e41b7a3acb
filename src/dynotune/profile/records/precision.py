"""In which precision matrix products really ran: the types of the operands of those that were traced, by their FLOPs."""

from collections import Counter

import numpy as np

from dynotune.measure.evidence import Source
from dynotune.measure.rooflines import FACTORS, cost_of
from dynotune.profile.records.record import Record

SIXTEEN_BITS = ("bfloat16", "float16")


def product_flops(record: Record) -> dict[str, float]:
    """FLOPs of the traced products by precision of their factors; empty without a trace. Products with a vector, such as
    those that rotary embeddings make their angles by, are none."""
    found = Counter[str]()
    for one in record.traced:
        events = one.events
        for i in np.flatnonzero(events.of_kind(Source.OPERATOR) & one.where.in_step).tolist():
            name = events.names[i]
            if name not in FACTORS:
                continue
            cost = cost_of(name, events.shapes[i], events.dtypes[i])
            first, second = FACTORS[name]
            if cost is None or min(*events.shapes[i][first][-2:], *events.shapes[i][second][-2:]) <= 1:
                continue
            found[cost.precision] += cost.flops
    return dict(found)


def full_precision_share(record: Record) -> float:
    """Of the FLOPs of products those in 32 bits or more, where 16 were asked for; else 0."""
    if record.model.asked_precision not in SIXTEEN_BITS:
        return 0.0
    flops = product_flops(record)
    total = sum(flops.values())
    return sum(n for precision, n in flops.items() if precision in ("float32", "float64")) / total if total else 0.0
