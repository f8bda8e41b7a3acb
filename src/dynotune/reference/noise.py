"""How far apart two computations of the same log-probability are when nothing differs but who shares their micro-batch."""

import numpy as np
from numpy.typing import NDArray

from dynotune.reference.check import Score, relative

EXACT = 1e-6
"""Of the log-probability: what float32 arithmetic keeps."""

FACTOR = 4.0
"""Between the largest difference of a sample and a bound that a whole step stays within."""


def measured_noise(score: Score, numbers: NDArray[np.int64]) -> float:
    """The bound for these backends and this precision: the pairs given are scored together and one by one.

    Low-precision arithmetic rounds otherwise where a product has another shape, so their log-probabilities differ; the
    largest relative difference times `FACTOR`, and at least `EXACT`. `score` is called once for all and once for each: a
    dozen pairs are enough. Infinite where a value is not a number.
    """
    together = score(numbers)
    alone = np.concatenate([score(numbers[i : i + 1]) for i in range(len(numbers))]) if len(numbers) else together
    return max(EXACT, FACTOR * float(relative(alone, together).max(initial=0.0)))


LIKE_AS_WRITTEN = 1.5
"""Kernels may be as far from each other as this many times the model's own operations are: as P2 allows them to be."""


def rounding_of(as_written: Score, score: Score, numbers: NDArray[np.int64]) -> float:
    """How far low precision takes these log-probabilities apart where other kernels compute the same: what is measured
    between the model's own operations and the run's, times `LIKE_AS_WRITTEN`. The pairs are those that differ most, so
    nothing is added for others. Infinite where a value is not a number."""
    return LIKE_AS_WRITTEN * float(relative(as_written(numbers), score(numbers)).max(initial=0.0))
