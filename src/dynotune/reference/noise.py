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
