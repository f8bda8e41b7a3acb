"""Brings micro-batches to the device, the next ones while it works on this one.

A thread lays documents out in pinned memory and starts the copy on a stream of its own; the loop only waits for a copy's
event, on the device. What the loop itself waited is counted.
"""

import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynotune.data.examples import Examples
from dynotune.plan.layout import MicroBatch
from dynotune.plan.plan import Plan, Step
from dynotune.plan.truncation import Spans
from dynotune.train.paths.path import Document, ExecutionPath, HostBatch

AHEAD = 2
"""Micro-batches that are ready or being made while one is worked on."""


class Documents:
    """The documents of a data set under `max_length`, as views of its flat arrays."""

    def __init__(self, examples: Examples, spans: Spans) -> None:
        self.examples, self.spans = examples, spans

    def at(self, rows: NDArray[np.int64]) -> list[Document]:
        """Ids and labels of the documents at these row indices."""
        bounds = zip(self.spans.start[rows].tolist(), self.spans.end[rows].tolist(), strict=True)
        return [(self.examples.ids[start:end], self.examples.labels[start:end]) for start, end in bounds]


class Feed:
    """Micro-batches of `documents` for `path`, on `device`."""

    def __init__(self, documents: Documents, path: ExecutionPath, device: torch.device, ahead: int = AHEAD) -> None:
        self.documents, self.path, self.device, self.ahead = documents, path, device, ahead
        self.wait_seconds = 0.0
        """How long whoever asked for a micro-batch had to wait for it, in all."""

        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def steps(self, plan: Plan, after: int = 0) -> Generator[tuple[Step, Iterator[Any]], None, None]:
        """The plan's steps behind step `after`, each with its micro-batches, which are to be taken before the next step."""
        pairs = ((step, batch) for step in plan.steps(after) for batch in step.micro_batches)
        waiting: deque[tuple[Step, Future[_Sent]]] = deque()
        with _Worker() as worker:

            def top_up() -> None:
                while len(waiting) <= self.ahead and (pair := next(pairs, None)):
                    waiting.append((pair[0], worker.submit(self._make, pair[1])))

            def of(step: Step) -> Iterator[Any]:
                for _ in step.micro_batches:
                    future = waiting.popleft()[1]
                    top_up()
                    yield self._arrived(future)

            top_up()
            while waiting:
                step = waiting[0][0]
                yield step, of(step)
                assert not waiting or waiting[0][0] is not step, "a step's micro-batches were not all taken"

    def batches(self, micro_batches: Iterable[MicroBatch]) -> Generator[Any, None, None]:
        """Any micro-batches, as evaluation needs them."""
        waiting: deque[Future[_Sent]] = deque()
        with _Worker() as worker:
            for batch in micro_batches:
                waiting.append(worker.submit(self._make, batch))
                if len(waiting) > self.ahead:
                    yield self._arrived(waiting.popleft())
            while waiting:
                yield self._arrived(waiting.popleft())

    def _make(self, batch: MicroBatch) -> "_Sent":
        """Runs in the worker's thread."""
        host = self.path.host_batch(self.documents.at(batch.rows), batch.tokens, pin=self._stream is not None)
        if self._stream is None:
            return _Sent(host, host.buffer, None)
        with torch.cuda.stream(self._stream):
            buffer = host.buffer.to(self.device, non_blocking=True)
            done = torch.cuda.Event()
            done.record(self._stream)
        return _Sent(host, buffer, done)

    def _arrived(self, future: "Future[_Sent]") -> Any:
        if not future.done():
            began = time.perf_counter()
            future.result()
            self.wait_seconds += time.perf_counter() - began
        sent = future.result()
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


class _Worker(ThreadPoolExecutor):
    """One thread. What was asked for ahead and is no longer wanted is not made."""

    def __init__(self) -> None:
        super().__init__(1, thread_name_prefix="dynotune-feed")

    def __exit__(self, *_: object) -> None:
        self.shutdown(wait=True, cancel_futures=True)
