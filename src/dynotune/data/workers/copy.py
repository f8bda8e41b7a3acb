"""A copy of this process as a program of workers: what it needs is there already, so nothing is imported or loaded again.

A fork copies the thread that asks for it and every lock as it stands. A lock that another thread holds stays locked in the
copy for ever, so a process is copied only while it has no other thread, but for those that are known to see a fork coming.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, NoReturn

_TASKS = Path("/proc/self/task")

_KNOWN = {"jemalloc_bg_thd"}
"""Threads that may be there: jemalloc (pyarrow brings it) takes its locks before a fork and gives them back behind it."""

_LONGEST_LOOK = 0.02
"""Seconds between two looks at whether a copy has ended."""


class NotAloneError(Exception):
    """This process has threads that a copy would miss."""


class Copy:
    """A copy of this process that runs `work` and ends: of `subprocess.Popen` what its owner needs."""

    stdin = None

    def __init__(self, work: Callable[[IO[bytes]], None], kept: tuple[int, ...]) -> None:
        """`work` gets a stream whose other end is `stdout`. Of the open files the copy has `kept` and the standard ones.

        Raises `NotAloneError`, and `OSError` where the system starts no process.
        """
        if sys.platform != "linux" or _python_threads() > 1:
            raise NotAloneError
        reading, writing = os.pipe()
        self.stdout: IO[bytes] = os.fdopen(reading, "rb")
        self.returncode: int | None = None
        self._waiting = threading.Lock()
        try:
            self.pid = _forked(work, writing, kept)
        except OSError:
            self.stdout.close()
            raise
        finally:
            os.close(writing)
        # Looked at now, since OpenBLAS, whose threads are everywhere, ends them before a fork.
        if _other_threads():
            self.kill()
            self.wait()
            self.stdout.close()
            raise NotAloneError

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        with self._waiting:
            if self.returncode is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # whoever ignores SIGCHLD never learns of it
                    pid, status = self.pid, 0
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status. Raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        pause = 0.0005
        while (status := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("a copy of this process", timeout or 0.0)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK)
        return status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _python_threads() -> int:
    return threading.active_count()


def _other_threads() -> bool:
    """Whether there are threads that are not Python's and not known to see a fork coming."""
    try:
        names = [(task / "comm").read_text().strip() for task in _TASKS.iterdir()]
    except OSError:  # a thread that has just ended, or a system that does not tell
        return True
    return len(names) - sum(name in _KNOWN for name in names) != 1


_STEERING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
"""Ctrl-C and a scheduler's signals reach the whole group; the parent decides what becomes of its children."""


def _forked(work: Callable[[IO[bytes]], None], writing: int, kept: tuple[int, ...]) -> int:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, OSError):  # closed
            stream.flush()  # what waits in their buffers would be written twice
    # Until the copy ignores them, its handlers are this process' own.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STEERING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python's, about threads: those are looked at here
            pid = os.fork()
        if not pid:
            _run(work, writing, kept, before)
        with contextlib.suppress(OSError):  # it has ended
            os.setpgid(pid, pid)  # as it does itself: whoever is first
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(
    work: Callable[[IO[bytes]], None], writing: int, kept: tuple[int, ...], signals: set[int | signal.Signals]
) -> NoReturn:
    status = 1
    try:
        for steering in _STEERING:
            signal.signal(steering, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        os.setpgid(0, 0)
        _close_all_but({0, 1, 2, writing, *kept})
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)  # what a library prints is no output of the parent's
        sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)  # not what the parent has put there
        work(os.fdopen(writing, "wb"))
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)  # all that the parent set up for its own end is not the copy's to do


def _close_all_but(kept: set[int]) -> None:
    """Among the others are the parent's ends of the sockets, by whose end workers learn that it has gone."""
    for number in [int(file.name) for file in Path("/proc/self/fd").iterdir()]:
        if number not in kept:
            with contextlib.suppress(OSError):  # the listing's own, which is closed
                os.close(number)
