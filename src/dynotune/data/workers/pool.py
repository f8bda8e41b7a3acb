"""Processes that encode chunks."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
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
    """Processes that encode chunks. They start at once, side by side, and end with the context."""

    def __init__(self, processes: int, setup: bytes) -> None:
        self.processes, self.setup = processes, setup
        self.most_under_way = (1 + UNDER_WAY) * processes
        self._threads = ThreadPoolExecutor(processes, "dynotune-processes")
        self._children: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._closing = False

    def __enter__(self) -> Self:
        try:
            for _ in range(self.processes):
                self._children.append(_child())
        except OSError as error:
            self.__exit__(type(error), error, None)
            raise DataError(
                f"{self.processes:,} tokenising processes cannot be started; {len(self._children):,} could"
                f" ({error.strerror or error}). Set `dataset_num_proc` to fewer, or to 1, which tokenises in this one."
            ) from error
        for child in self._children:
            threading.Thread(target=self._greet, args=(child,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing = True
        for child in self._children:
            child.kill()  # it holds nothing that could be lost
            child.wait()
            self._idle.put(child)  # whoever waits for one finds out
        self._threads.shutdown(cancel_futures=True)
        for child in self._children:
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):  # a job that it was not sent in full
                    pipe.close()

    @property
    def is_up(self) -> bool:
        """Whether some process waits for work."""
        return not self._idle.empty()

    def submit(self, rows: Any) -> Future[Chunk]:
        """What the rows became, or what encoding them raised."""
        return self._threads.submit(self._encode, pickle.dumps(rows, pickle.HIGHEST_PROTOCOL))

    def _greet(self, child: subprocess.Popen[bytes]) -> None:
        """Give a process what it needs, and wait until it has it."""
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # it has died; who gives it a job finds out
            send(child.stdin, self.setup)
            receive(child.stdout)
        self._idle.put(child)

    def _encode(self, job: bytes) -> Chunk:
        child = self._idle.get()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            send(child.stdin, job)
            reply = receive(child.stdout)
        except (OSError, ValueError):  # the pipe is broken, or was closed
            reply = None
        finally:
            self._idle.put(child)
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


def _child() -> subprocess.Popen[bytes]:
    path = json.dumps([os.path.abspath(entry) for entry in sys.path])  # noqa: PTH100  (keeps entries that are files)
    return subprocess.Popen(  # noqa: S603  (this interpreter, with our own code)
        [sys.executable, "-P", "-c", BOOTSTRAP, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **_ONE_CORE},
    )


_ONE_CORE = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
"""Each process has a core; threads on top would only take turns."""


def setup_of(config: DataConfig, tokenizer: PreTrainedTokenizerBase, rows: Any) -> bytes:
    """What a process needs. Raises `CannotTravelError` where the tokenizer, or rows like these, cannot be sent there."""
    module = type(tokenizer).__module__
    if module == "__main__" or module.startswith("transformers_modules") or not sys.executable:
        raise CannotTravelError(
            f"the tokenizer's class, {type(tokenizer).__name__}, is not one that another process has"
        )
    topic = DataConfig.model_construct(**{name: getattr(config, name) for name in DataConfig.model_fields})
    try:
        setup = pickle.dumps((topic, tokenizer), pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise CannotTravelError(f"the tokenizer cannot be sent to another process ({error})") from error
    try:
        pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise CannotTravelError(f"rows cannot be sent to another process ({error})") from error
    return setup


class CannotTravelError(Exception):
    """Work stays in this process. The reason is for people."""
