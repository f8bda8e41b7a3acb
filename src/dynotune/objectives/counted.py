"""What the loop knows of an objective: sums over micro-batches, and what they are divided by."""

from collections.abc import Collection
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Counted(Protocol):
    """A step's loss is the sum over its micro-batches and ranks, divided by what is counted."""

    @property
    def sums(self) -> Collection[str]:
        """Names of what a path's `loss` returns beside the loss, in its order."""
        ...

    def counts(self, spans: Any, rows: NDArray[np.int64]) -> tuple[int, ...]:
        """What the summed loss, then each of `sums` is divided by, over these rows of a plan of the units `spans`. None
        is 0."""
        ...
