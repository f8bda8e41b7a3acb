"""Processes that encode chunks."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from dynotune.config.keys.data import DataConfig, PreferenceDataConfig
from dynotune.data.chunk import Chunk, ChunkEncoder
from dynotune.data.templates.bounds import end_watch
from dynotune.data.tokens.encode import Encoder
from dynotune.data.tokens.tokenise import remember_words
from dynotune.data.workers.copy import Copy, NotAloneError
from dynotune.data.workers.process import BOOTSTRAP, branch, receive, send
from dynotune.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

UNDER_WAY = 2
"""Chunks a process that may wait or be done, besides the one that it works on. Bounds memory."""

PATIENCE = 2.0
"""Seconds that processes without work may take to end before they are ended."""

FORKS = sys.platform == "linux"
"""Elsewhere there is no fork, or libraries of the system do not survive one."""


Program = subprocess.Popen[bytes] | Copy


class _Worker:
    """A process as who gives it jobs sees it: where they go, where results come from, and the program that it is of."""

    def __init__(self, program: Program, jobs: IO[bytes], results: IO[bytes]) -> None:
        self.program, self.jobs, self.results = program, jobs, results


class Pool:
    """Processes that encode chunks. They start at once, and end with the context.

    With `setup` as bytes they are programs that get it: where the system forks, one that loads the tokenizer and becomes all
    of them, elsewhere each its own. With a configuration and a tokenizer, a copy of this process becomes all of them:
    entering the context raises `NotAloneError` where that cannot be done.
    """

    def __init__(self, processes: int, setup: bytes | tuple[DataConfig, PreTrainedTokenizerBase]) -> None:
        self.processes, self.setup = processes, setup
        self.most_under_way = (1 + UNDER_WAY) * processes
        self._threads = ThreadPoolExecutor(processes, "dynotune-processes")
        self._children: list[Program] = []
        self._sockets: list[socket.socket] = []
        self._streams: list[IO[bytes]] = []
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._refused: DataError | None = None
        self._closing = False

    def __enter__(self) -> Self:
        try:
            workers = self._forked() if FORKS else self._started()
        except NotAloneError as error:
            self.__exit__(type(error), error, None)
            raise
        except OSError as error:
            self.__exit__(type(error), error, None)
            raise self._too_many(0 if FORKS else len(self._children), error.strerror or str(error)) from error
        for child in self._children:
            mine = [worker for worker in workers if worker.program is child]
            threading.Thread(target=self._greet, args=(child, mine), daemon=True).start()
        return self

    def _forked(self) -> list[_Worker]:
        theirs: list[socket.socket] = []
        try:
            for _ in range(self.processes):
                here, there = socket.socketpair()
                self._sockets.append(here)
                theirs.append(there)
            kept = tuple(there.fileno() for there in theirs)
            child: Program = _child(kept) if isinstance(self.setup, bytes) else self._copied(theirs, kept, *self.setup)
        finally:
            for there in theirs:
                there.close()
        self._children.append(child)
        return [self._worker(child, here.makefile("wb"), here.makefile("rb")) for here in self._sockets]

    def _copied(
        self, theirs: list[socket.socket], kept: tuple[int, ...], config: DataConfig, tokenizer: PreTrainedTokenizerBase
    ) -> Copy:
        encoder = ChunkEncoder(config, Encoder(tokenizer, config).get_ready())

        def work(results: IO[bytes]) -> None:
            os.environ.update(_ONE_CORE)
            remember_words(tokenizer)
            branch(theirs, results, encoder)

        end_watch()
        return Copy(work, kept)

    def _started(self) -> list[_Worker]:
        workers: list[_Worker] = []
        for _ in range(self.processes):
            child = _child()
            self._children.append(child)
            assert child.stdin is not None
            assert child.stdout is not None
            workers.append(self._worker(child, child.stdin, child.stdout))
        return workers

    def _worker(self, child: Program, jobs: IO[bytes], results: IO[bytes]) -> _Worker:
        self._streams += [jobs, results]
        return _Worker(child, jobs, results)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing = True
        if kind is None and self._sockets and self.is_up:
            # All work is done: they end by themselves, and their processor time counts as the program's.
            for one in self._sockets:
                one.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._children[0].wait(PATIENCE)
        for child in self._children:
            # They hold nothing that could be lost. The group's number is ours until the child is waited for.
            if FORKS and child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.kill()
            child.wait()
        for one in self._sockets:  # ends a worker whose program died before it, and whoever waits for an answer
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for _ in range(self.processes):
            self._idle.put(_NOBODY)  # whoever waits for one finds out
        self._threads.shutdown(cancel_futures=True)
        for pipe in (
            *self._streams,
            *(pipe for child in self._children for pipe in (child.stdin, child.stdout) if pipe),
        ):
            with contextlib.suppress(OSError):  # a job that it was not sent in full
                pipe.close()
        for one in self._sockets:
            one.close()

    @property
    def is_copy(self) -> bool:
        """Whether this process was copied: then all start at once."""
        return not isinstance(self.setup, bytes)

    @property
    def is_up(self) -> bool:
        """Whether some process waits for work."""
        return not self._idle.empty()

    def submit(self, rows: Any) -> Future[Chunk]:
        """What the rows became, or what encoding them raised."""
        return self._threads.submit(self._encode, pickle.dumps(rows, pickle.HIGHEST_PROTOCOL))

    def _greet(self, child: Program, workers: list[_Worker]) -> None:
        """Give a program what it needs, and wait until it has it."""
        assert child.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # it has died; who gives it a job finds out
            if isinstance(self.setup, bytes):
                assert child.stdin is not None
                send(child.stdin, self.setup)
            if told := receive(child.stdout):
                self._refused = self._too_many(*json.loads(told))
        for worker in workers:
            self._idle.put(worker)

    def _encode(self, job: bytes) -> Chunk:
        worker = self._idle.get()
        reply = None
        try:
            if worker is not _NOBODY:
                send(worker.jobs, job)
                reply = receive(worker.results)
        except (OSError, ValueError):  # the stream is broken, or was closed
            reply = None
        finally:
            self._idle.put(worker)
        if reply is None:
            if self._refused is not None:
                raise self._refused
            code = None if self._closing else worker.program.wait()
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

    def _too_many(self, started: int, why: str) -> DataError:
        return DataError(
            f"{self.processes:,} tokenising processes cannot be started; {started:,} could ({why})."
            " Set `dataset_num_proc` to fewer, or to 1, which tokenises in this one."
        )


_NOBODY: Any = object()


def _child(sockets: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    """A program of `process`, in a group of its own so that all that it becomes can be ended together."""
    path = json.dumps([os.path.abspath(entry) for entry in sys.path])  # noqa: PTH100  (keeps entries that are files)
    return subprocess.Popen(  # noqa: S603  (this interpreter, with our own code)
        [sys.executable, "-P", "-c", BOOTSTRAP, path, json.dumps(sockets)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **_ONE_CORE},
        pass_fds=sockets,
        process_group=0 if sockets else None,
    )


_ONE_CORE = {
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""Each process has a core; threads on top would only take turns, and a program with threads must not fork."""


def setup_of(config: DataConfig, tokenizer: PreTrainedTokenizerBase, rows: Any) -> bytes:
    """What a process needs. Raises `CannotTravelError` where the tokenizer, or rows like these, cannot be sent there."""
    module = type(tokenizer).__module__
    if module == "__main__" or module.startswith("transformers_modules") or not sys.executable:
        raise CannotTravelError(
            f"the tokenizer's class, {type(tokenizer).__name__}, is not one that another process has"
        )
    kind = PreferenceDataConfig if isinstance(config, PreferenceDataConfig) else DataConfig
    topic = kind.model_construct(**{name: getattr(config, name) for name in kind.model_fields})
    try:
        setup = pickle.dumps((topic, tokenizer), pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise CannotTravelError(f"the tokenizer cannot be sent to another process ({error})") from error
    refuse_unsendable(rows)
    return setup


def refuse_unsendable(rows: Any) -> None:
    """Raises `CannotTravelError` where rows like these cannot be sent to another process."""
    try:
        pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise CannotTravelError(f"rows cannot be sent to another process ({error})") from error


class CannotTravelError(Exception):
    """Work stays in this process. The reason is for people."""
