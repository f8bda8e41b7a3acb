"""Brings micro-batches to the device, the next ones while it works on this one.

A thread lays documents out in pinned memory and starts the copy on a stream of its own; the loop only waits for a copy's
event, on the device. What the loop itself waited is counted.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynotune.data.examples import Examples
from dynotune.execution.path import Document, ExecutionPath, HostBatch
from dynotune.plan.layout import MicroBatch
from dynotune.plan.plan import Plan, Step
from dynotune.plan.truncation import Spans

Item = TypeVar("Item")

AHEAD = 2
"""Micro-batches that are ready or being made while one is worked on, besides the one that is next."""


class Items(Protocol):
    """What micro-batches are made of, as the plan numbers it: documents, or pairs."""

    reference: str | None
    """Names the weights that the values which come with them were computed by; None where none come."""

    def at(self, rows: NDArray[np.int64]) -> Sequence[Any]:
        """What an `ExecutionPath` lays out, for these rows by themselves."""
        ...

    def of(self, batch: MicroBatch) -> Sequence[Any]:
        """The same for a micro-batch, with what follows from the step that its rows belong to."""
        ...

    def prompted(self, row: int) -> Document:
        """A document whose prompt a generation may answer."""
        ...


class Documents:
    """The documents of a data set under `max_length`, as views of its flat arrays."""

    reference: str | None = None

    def __init__(self, examples: Examples, spans: Spans) -> None:
        self.examples, self.spans = examples, spans

    def at(self, rows: NDArray[np.int64]) -> list[Document]:
        """Ids and labels of the documents at these row indices."""
        bounds = zip(self.spans.start[rows].tolist(), self.spans.end[rows].tolist(), strict=True)
        return [(self.examples.ids[start:end], self.examples.labels[start:end]) for start, end in bounds]

    def of(self, batch: MicroBatch) -> list[Document]:
        return self.at(batch.rows)

    def prompted(self, row: int) -> Document:
        return self.at(np.array([row]))[0]


class Feed:
    """Micro-batches of `items` for `path`, on `device`."""

    def __init__(self, items: Items, path: ExecutionPath, device: torch.device, ahead: int = AHEAD) -> None:
        """ahead: 0 makes each micro-batch when it is asked for, in the thread that asks."""
        self.items, self.path, self.device, self.ahead = items, path, device, ahead
        self.wait_seconds = 0.0
        """How long whoever asked for a micro-batch had to wait for it, in all."""

        self.made_ahead = 0
        """Micro-batches that were being made before they were asked for."""

        self.around_wait: Callable[[], AbstractContextManager[object]] = nullcontext
        """What stands around the wait for a micro-batch, for who traces."""

        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def steps(self, plan: Plan, after: int = 0) -> "Steps":
        """The plan's steps behind step `after`, each with its micro-batches. To be closed."""
        return Steps(self, plan, after)

    def batches(self, micro_batches: Iterable[MicroBatch]) -> Generator[Any, None, None]:
        """Any micro-batches, as evaluation needs them."""
        with closing(_Ahead(self._make, iter(micro_batches), self.ahead)) as made:
            while made.next_item is not None:
                yield self._arrived(made)

    def _make(self, batch: MicroBatch) -> "_Sent":
        """Runs in the worker's thread."""
        host = self.path.host_batch(self.items.of(batch), batch.tokens, pin=self._stream is not None)
        if self._stream is None:
            return _Sent(host, host.buffer, None)
        with torch.cuda.stream(self._stream):
            buffer = host.buffer.to(self.device, non_blocking=True)
            done = torch.cuda.Event()
            done.record(self._stream)
        return _Sent(host, buffer, done)

    def _arrived(self, made: "_Ahead[Any]") -> Any:
        """The next one of `made`, on the device."""
        with self.around_wait():
            sent, seconds, ahead = made.take()
        self.wait_seconds += seconds
        self.made_ahead += ahead
        if sent.done is not None:
            working = torch.cuda.current_stream(self.device)
            working.wait_event(sent.done)
            sent.buffer.record_stream(working)  # the allocator must not hand it out while this stream still reads it
        return sent.host.unpack(sent.buffer)


class _Sent:
    """A micro-batch on its way: `done` is the event behind its copy."""

    __slots__ = ("buffer", "done", "host")

    def __init__(self, host: HostBatch, buffer: Tensor, done: "torch.cuda.Event | None") -> None:
        self.host, self.buffer, self.done = host, buffer, done


class Steps:
    """Steps in order, each with its micro-batches, which are to be taken before the next step is."""

    def __init__(self, feed: Feed, plan: Plan, after: int) -> None:
        self.feed = feed
        self._step: Step | None = None
        self._made = self._begin(plan, after)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Step, Iterator[Any]]:
        if (item := self._made.next_item) is None:
            raise StopIteration
        assert item[0] is not self._step, "a step's micro-batches were not all taken"
        self._step = item[0]
        return self._step, self._batches(self._step)

    def again(self, plan: Plan) -> tuple[Step, Iterator[Any]]:
        """The step that was taken last once more, laid out as `plan` has it, and all steps behind it likewise."""
        assert self._step is not None
        self.close()
        self._made, self._step = self._begin(plan, self._step.number - 1), None
        return next(self)

    def close(self) -> None:
        self._made.close()

    def _begin(self, plan: Plan, after: int) -> "_Ahead[tuple[Step, MicroBatch]]":
        pairs = ((step, batch) for step in plan.steps(after) for batch in step.micro_batches)
        return _Ahead(lambda pair: self.feed._make(pair[1]), pairs, self.feed.ahead)

    def _batches(self, step: Step) -> Iterator[Any]:
        for _ in step.micro_batches:
            yield self.feed._arrived(self._made)


class _Ahead(Generic[Item]):
    """What is made of items in a thread, before it is asked for: `ahead` of them besides the one that is next. With
    `ahead` 0 each is made when it is asked for, by whoever asks."""

    def __init__(self, make: "Callable[[Item], _Sent]", items: Iterator[Item], ahead: int) -> None:
        self.make, self.items, self.ahead = make, items, ahead
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="dynotune-feed")
        self._waiting: deque[tuple[Item, Future[_Sent] | None]] = deque()
        self._top_up()

    @property
    def next_item(self) -> Item | None:
        """What `take` gives next was made of this; None at the end."""
        return self._waiting[0][0] if self._waiting else None

    def take(self) -> "tuple[_Sent, float, bool]":
        """The next one, how long it was waited for in seconds, and whether it was begun before it was asked for."""
        item, future = self._waiting.popleft()
        self._top_up()
        if future is not None and future.done():
            return future.result(), 0.0, True
        began = time.perf_counter()
        made = self.make(item) if future is None else future.result()
        return made, time.perf_counter() - began, future is not None

    def close(self) -> None:
        """What was asked for ahead and is no longer wanted is not made."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _top_up(self) -> None:
        while len(self._waiting) <= self.ahead and (item := next(self.items, None)) is not None:
            self._waiting.append((item, self._worker.submit(self.make, item) if self.ahead else None))
