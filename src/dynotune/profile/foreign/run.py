"""Starts a command as it is, with the hook in its Python processes, shows what it prints, and waits for its end.

In a session of its own, so that what is left of it can be ended at once, a launcher's children too. A terminal's Ctrl-C
and its closing do not reach that session: they are passed on, and whatever leaves `run` leaves nothing of it running.
Workers in sessions of their own (torchrun's) are known by the events that they told, and end with a command that had to be
ended.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

import psutil

from dynotune.errors import ConfigError
from dynotune.profile.foreign.protocol import VARIABLE, events
from dynotune.train.outside.signals import StoppedError, number_of

HOOK = Path(__file__).parent / "hook"

LOOK = 0.5
"""Seconds between two looks at whether it has ended."""

GRACE = 60.0
"""Seconds for a script that was stopped to end: it may have to wait for an upload, or for other ranks."""

LAST = 12
"""Lines of its output that are kept for a message."""


@dataclass(slots=True)
class Ran:
    """A command that has ended."""

    code: int
    """Exit code; below 0 the signal that ended it, as `subprocess` has it."""

    seconds: float
    last: tuple[str, ...]
    """Lines of its output, standard error included."""

    ended_by_us: bool = False
    """It was stopped, did not end by itself, and was ended by a signal."""


@dataclass(slots=True)
class _Tail:
    """Shows what comes out of a pipe, and keeps the end of it."""

    to: IO[bytes] | None
    last: deque[str] = field(default_factory=lambda: deque(maxlen=LAST))
    _line: bytes = b""

    def drain(self, pipe: IO[bytes]) -> None:
        """Until it is closed. Progress bars rewrite their line by a carriage return, and are shown as they are."""
        while chunk := os.read(pipe.fileno(), 1 << 16):
            if self.to is not None:
                with suppress(OSError, ValueError):  # nobody reads any more: the command goes on
                    self.to.write(chunk)
                    self.to.flush()
            *whole, self._line = (self._line + chunk).split(b"\n")
            for line in whole:
                self._keep(line)
        self._keep(self._line)

    def _keep(self, line: bytes) -> None:
        text = line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", errors="replace").rstrip()
        if text:
            self.last.append(text)


def run(words: Sequence[str], folder: Path, show: IO[bytes] | None, say: Callable[[str], None]) -> Ran:
    """folder: in which options stand, and in which processes write. show: where its output goes; None: nowhere.

    Raises `ConfigError` where there is no such command.
    """
    began = time.perf_counter()
    with _hearing_the_terminal_close():
        try:
            process = subprocess.Popen(  # noqa: S603  (the user's own command)
                words, env=environment(os.environ, folder), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ConfigError(f"`{words[0]}` cannot be run: {error.strerror or error}.") from error
        try:
            assert process.stdout is not None
            tail = _Tail(show)
            reader = threading.Thread(target=tail.drain, args=(process.stdout,), daemon=True)
            reader.start()
            ended_by_us = _wait(process, folder, say)
        finally:
            _end(process, folder)
        reader.join(LOOK)  # a child that has left the session may hold the pipe open for ever
    return Ran(process.returncode, time.perf_counter() - began, tuple(tail.last), ended_by_us)


@contextmanager
def _hearing_the_terminal_close() -> Iterator[None]:
    """SIGHUP, which would end this process where it stands, raises as SIGTERM does. An ignored one (`nohup`) stays so."""
    hangup = getattr(signal, "SIGHUP", None)
    in_main = threading.current_thread() is threading.main_thread()
    if hangup is None or not in_main or signal.getsignal(hangup) is not signal.SIG_DFL:
        yield
        return

    def heard(number: int, frame: FrameType | None) -> None:
        raise StoppedError(number)

    signal.signal(hangup, heard)
    try:
        yield
    finally:
        signal.signal(hangup, signal.SIG_DFL)


def environment(given: Mapping[str, str], folder: Path) -> dict[str, str]:
    """`given`, with the hook in front of what Python imports from."""
    path = os.pathsep.join([str(HOOK), *filter(None, [given.get("PYTHONPATH")])])
    # Lines of a script that is stopped would else be lost in its buffer, and all others be late.
    return {"PYTHONUNBUFFERED": "1", **given, "PYTHONPATH": path, VARIABLE: str(folder)}


def _wait(process: subprocess.Popen[bytes], folder: Path, say: Callable[[str], None]) -> bool:
    """Returns whether it had to be ended."""
    stopped: float | None = None
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK)
            return False
        if stopped is None and any(one["event"] == "stopped" for one in events(folder)):
            stopped = time.perf_counter()
        if stopped is not None and time.perf_counter() - stopped > GRACE:
            say(f"The script was stopped {GRACE:.0f} s ago and has not ended: it is ended by SIGTERM.")
            return True


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Whatever is left of it: workers of loaders outlive a script that is killed. An impatient second Ctrl-C only makes
    it shorter."""
    running = process.poll() is None
    error = sys.exc_info()[1]
    by_hand = isinstance(error, KeyboardInterrupt) and number_of(error) == signal.SIGINT
    try:
        if running:
            for number in (signal.SIGINT, signal.SIGTERM) if by_hand else (signal.SIGTERM,):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE / 6)
                    break
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if running or process.returncode < 0:  # a launcher that ended by itself has ended its workers, or wants them on
            _end_outside(folder)


def _end_outside(folder: Path) -> None:
    left = outside(folder)
    try:
        for one in left:
            with suppress(psutil.Error):
                one.terminate()
        psutil.wait_procs(left, timeout=GRACE / 6)
    finally:
        for one in left:
            with suppress(psutil.Error):
                one.kill()


def outside(folder: Path) -> list[psutil.Process]:
    """Processes that told events and still run. The number of one that has ended may be another's by now: what counts is
    that its variables name this folder."""
    found = []
    for pid in {one.get("pid") for one in events(folder)}:
        if not isinstance(pid, int) or pid <= 0:
            continue
        with suppress(psutil.Error, OSError, OverflowError):
            process = psutil.Process(pid)
            if process.environ().get(VARIABLE) == str(folder):
                found.append(process)
    return found
