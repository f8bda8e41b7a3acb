"""Numbers that stay on the device while the step runs, and are read when they are there anyway."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class LateReader(Generic[T]):
    """Copies device tensors to the host without making it wait, and hands them out in order once they have arrived."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.waiting: deque[tuple[T, Tensor | list[list[float]], torch.cuda.Event | None]] = deque()

    def push(self, what: T, vectors: Sequence[Tensor]) -> None:
        """Start the copy of `vectors`, all of one length; `what` comes back with their numbers."""
        if not self.cuda or not vectors:  # stacking them would take longer than reading each
            self.waiting.append((what, [vector.tolist() for vector in vectors], None))
            return
        values = torch.stack(list(vectors))
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        host.copy_(values, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        self.waiting.append((what, host, arrived))

    def arrived(self, wait: bool = False) -> Iterator[tuple[T, list[list[float]]]]:
        """What has arrived, oldest first: a list for each vector; with `wait`, everything that was pushed."""
        while self.waiting:
            what, values, event = self.waiting[0]
            if event is not None and not event.query():
                if not wait:
                    return
                event.synchronize()
            self.waiting.popleft()
            yield what, values.tolist() if isinstance(values, Tensor) else values
