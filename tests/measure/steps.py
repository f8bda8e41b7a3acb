"""Steps of a plan made by hand."""

from collections.abc import Sequence

import numpy as np

from dynotune.plan.layout import MicroBatch
from dynotune.plan.plan import Step


def step_of(
    lengths: Sequence[int], labels: int | None = None, tokens: Sequence[int] | None = None, number: int = 1
) -> Step:
    """Documents of these lengths: one micro-batch each, or all in one of `tokens[0]` tokens and empty ones behind it."""
    n = np.array(lengths, np.int64)
    rows = np.arange(len(n))
    if tokens is None:
        batches = [MicroBatch(rows[i : i + 1], int(n[i]), real_tokens=int(n[i])) for i in range(len(n))]
    else:
        first = MicroBatch(rows, tokens[0], real_tokens=int(n.sum()))
        batches = [first, *(MicroBatch(rows[:0], t) for t in tokens[1:])]
    real = int(n.sum())
    return Step(number, 1.0, rows, n, batches, real, real if labels is None else labels)
