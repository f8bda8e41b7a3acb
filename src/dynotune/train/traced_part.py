"""Which micro-batches of a step the proof traces: a trace costs by its events, and each micro-batch shows the same.

A step of eight documents one by one through 7B has 312,000 events, and 12 to 18 s to end and read its trace stood beside
1.8 s of training (one H200).
"""

import numpy as np

from dynotune.measure.traces.step import Sample
from dynotune.plan.layout import MicroBatch
from dynotune.plan.plan import Step
from dynotune.plan.truncation import Units


def traced_part(step: Step, units: Units) -> Sample:
    """The first micro-batch and the last, and of what neither can show the one that shows most: a document at all, several
    side by side, and beginnings that are laid out once.

    The last one finds gradients of others, is where ranks add theirs up, and stands beside the update, with which it is
    traced in one.
    """
    every = step.micro_batches
    numbers = [0, len(every) - 1] if every else []
    if len(every) > len(numbers):
        for shown in np.array([_shown(batch, units) for batch in every]).T:
            if shown[numbers].max() <= 0 < shown.max():
                numbers.append(int(shown.argmax()))
    return Sample(tuple(sorted(set(numbers))), len(every))


def _shown(batch: MicroBatch, units: Units) -> tuple[int, int, int, int]:
    """More than none where a trace can tell it: documents; those beside the first; tokens less than the documents have, with
    padding and without."""
    sequences, _ = units.attention_of(batch.rows)
    tokens = int(sequences.sum())
    return len(sequences), len(sequences) - 1, tokens - batch.tokens, tokens - batch.real_tokens
