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
        self._stream = torch.cuda.current_stream(device) if self.cuda else None
        self.waiting: deque[tuple[T, Tensor | list[list[float]], torch.cuda.Event | None]] = deque()
        self._read: dict[torch.Size, list[tuple[Tensor, torch.cuda.Event]]] = {}
        """Room on the host and the event of its copy, by shape, that were read and are used again: to make both takes
        several times as long as to start the copy."""

    def push(self, what: T, vectors: Sequence[Tensor]) -> None:
        """Start the copy of `vectors`, all of one length; `what` comes back with their numbers."""
        if not self.cuda or not vectors:  # stacking them would take longer than reading each
            self.waiting.append((what, [vector.tolist() for vector in vectors], None))
            return
        values = torch.stack(list(vectors))
        read = self._read.setdefault(values.shape, [])
        if not read:
            read.append((torch.empty(values.shape, dtype=values.dtype, pin_memory=True), torch.cuda.Event()))
        host, arrived = read.pop()
        host.copy_(values, non_blocking=True)
        arrived.record(self._stream)
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
            if not isinstance(values, Tensor):
                yield what, values
                continue
            numbers = values.tolist()
            if event is not None:
                self._read.setdefault(values.shape, []).append((values, event))
            yield what, numbers
