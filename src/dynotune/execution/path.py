"""What a way of executing micro-batches must offer. The loop, the feed and the evaluation know no other difference."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Document = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Ids and labels of one document, unshifted, on the host."""


@dataclass(frozen=True, slots=True)
class HostBatch:
    """A micro-batch before it goes to the device: everything in one buffer, so that it travels in one copy."""

    buffer: Tensor
    """int64, pinned where the device is a GPU."""

    unpack: Callable[[Tensor], Any]
    """From the buffer on the device to what `Path.loss` takes: views only, nothing is copied or computed."""


class ExecutionPath(Protocol):
    """One way of executing a step's documents. All of them give the same loss and gradient."""

    @property
    def labelled_rows_head(self) -> bool:
        """Whether the LM head sees label tokens only: what its FLOPs are counted for."""
        ...

    def host_batch(self, items: Sequence[Any], tokens: int, pin: bool) -> HostBatch:
        """Lay documents or pairs out in `tokens` tokens. Runs in the feed's thread and touches no device."""
        ...

    def tokens_of(self, item: Any) -> int:
        """Tokens that it takes in a micro-batch."""
        ...

    def units(self, units: Any) -> Any:
        """`units` of a plan (`Units`), as they take up micro-batches on this path."""
        ...

    def engaged(self) -> AbstractContextManager[Any]:
        """What a forward pass and its backward run in. Outside of it the model is as the user knows it: callbacks,
        generation and saving see stock transformers."""
        ...

    def notes(self) -> list[str]:
        """What is to be said, when the run is over, of how its micro-batches were executed."""
        ...

    def loss(self, batch: Any) -> tuple[Tensor, Tensor]:
        """The micro-batch's summed loss [] and the objective's detached sums, from what `unpack` gave."""
        ...
