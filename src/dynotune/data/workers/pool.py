"""Chunks encoded by several processes, in order, with a bounded number under way."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dynotune.config.keys.data import DataConfig
from dynotune.data.chunk import Chunk
from dynotune.data.workers.process import BOOTSTRAP, receive, send
from dynotune.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

UNDER_WAY = 2
"""Chunks a process that may wait or be done, besides the one that it works on. Bounds memory."""


class Pool:
    """Processes that encode chunks. They start with the first chunks, and end with the context."""

    def __init__(self, processes: int, setup: bytes) -> None:
        self.processes, self.setup = processes, setup
        self._threads = ThreadPoolExecutor(processes, "dynotune-tokenise")
        self._own = threading.local()
        self._children: list[subprocess.Popen[bytes]] = []
        self._closing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for child in self._children:
            child.kill()  # it holds nothing that could be lost
        self._threads.shutdown()
        for child in self._children:
            child.wait()
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):  # a job that it was not sent in full
                    pipe.close()

    def encode(self, chunks: Iterable[Any]) -> Iterator[Chunk]:
        """The chunks that rows became, in the order of the rows. Raises what encoding them raised."""
        under_way: deque[Future[Chunk]] = deque()
        for rows in chunks:
            under_way.append(self._threads.submit(self._encode, pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)))
            if len(under_way) > (1 + UNDER_WAY) * self.processes:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

    def _encode(self, job: bytes) -> Chunk:
        child = self._child()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            send(child.stdin, job)
            reply = receive(child.stdout)
        except (OSError, ValueError):  # the pipe is broken, or was closed
            reply = None
        if reply is None:
            code = None if self._closing else child.wait()
            raise DataError(
                f"A tokenising process ended before its work was done (exit status {code}"
                f"{': killed, as by a system that is out of memory' if code == -9 else ''}). Set `dataset_num_proc` to fewer"
                f" processes than {self.processes}, or to 1, which tokenises in this one."
            )
        done, result = pickle.loads(reply)  # noqa: S301  (from our own child)
        if not done:
            raise result
        chunk: Chunk = result
        return chunk

    def _child(self) -> subprocess.Popen[bytes]:
        """This thread's process."""
        child: subprocess.Popen[bytes] | None = getattr(self._own, "child", None)
        if child is None:
            path = json.dumps([os.path.abspath(entry) for entry in sys.path])  # noqa: PTH100  (keeps entries that are files)
            child = subprocess.Popen(  # noqa: S603  (this interpreter, with our own code)
                [sys.executable, "-c", BOOTSTRAP, path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **_ONE_CORE},
            )
            self._own.child = child
            self._children.append(child)
            if self._closing:
                child.kill()
            assert child.stdin is not None
            send(child.stdin, self.setup)
        return child


_ONE_CORE = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
"""Each process has a core; threads on top would only take turns."""


def setup_of(config: DataConfig, tokenizer: PreTrainedTokenizerBase) -> bytes:
    """What a process needs. Raises `CannotTravelError` where a tokenizer cannot be sent to another process."""
    module = type(tokenizer).__module__
    if module == "__main__" or module.startswith("transformers_modules") or not sys.executable:
        raise CannotTravelError(
            f"the tokenizer's class, {type(tokenizer).__name__}, is not one that another process has"
        )
    topic = DataConfig.model_construct(**{name: getattr(config, name) for name in DataConfig.model_fields})
    try:
        return pickle.dumps((topic, tokenizer), pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise CannotTravelError(f"the tokenizer cannot be sent to another process ({error})") from error


class CannotTravelError(Exception):
    """Work stays in this process. The reason is for people."""
