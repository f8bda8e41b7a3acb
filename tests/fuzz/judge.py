"""The judge of a case: what a command may do with an input that nobody meant.

It may take it, or refuse it by a `DynotuneError` that says so in printable words. Anything else is a defect: another
exception, a case that takes too long or too much memory, a file written outside of the folder that is the command's own.
"""

import faulthandler
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from dynotune.errors import DynotuneError

LONGEST_MESSAGE = 20_000
"""Characters: an error that repeats the input as a whole is none that anybody reads."""

SECONDS = 20
"""A case's limit. Most take milliseconds; this one also holds on a machine that does other things."""

MEMORY = 3 << 29
"""Bytes by which the process may grow above what it needed for the file as it was meant."""


def peak_kib() -> int:
    """The most that this process has held. Linux's `ru_maxrss` would be that of whoever started it, if that was more."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


class TooLongError(BaseException):
    """No `Exception`, so that no `except` of a library takes it."""


@dataclass
class Verdict:
    """What became of the cases of one kind."""

    taken: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """By class and file of the code that refused."""

    defects: list[str] = field(default_factory=list)
    slowest: float = 0.0

    @property
    def cases(self) -> int:
        return self.taken + self.refused.total() + len(self.defects)

    def told(self, kind: str) -> str:
        peak = peak_kib() / 1024
        return (
            f"{kind}: {self.cases:,} cases, {self.taken:,} taken, {self.refused.total():,} refused in"
            f" {len(self.refused)} ways, {len(self.defects)} defects; slowest {self.slowest:.2f} s, peak {peak:,.0f} MiB"
        )


class Outside:
    """Every opening for writing, renaming, making and removing that Python itself does outside of some folders.

    An audit hook cannot be removed, so there is one, which only looks while a case runs.
    """

    _allowed: tuple[str, ...] | None = None
    _seen: list[str] = []  # noqa: RUF012  (one hook, one list)
    _installed = False

    @classmethod
    @contextmanager
    def watched(cls, *allowed: Path) -> Iterator[list[str]]:
        if not cls._installed:
            sys.addaudithook(cls._hook)
            cls._installed = True
        cls._seen = []
        cls._allowed = tuple(os.path.realpath(path) for path in allowed)
        try:
            yield cls._seen
        finally:
            cls._allowed = None

    @classmethod
    def _hook(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if cls._allowed is None:
            return
        if event == "open":
            path, mode, flags = arguments
            writes = (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
            if not writes and not (isinstance(mode, str) and set(mode) & set("wax+")):
                return
            paths = [path]
        elif event in ("os.rename", "os.link", "os.symlink"):
            paths = list(arguments[:2])
        elif event in ("os.remove", "os.rmdir") and arguments[1] != -1:  # relative to an open folder
            paths = [os.path.join(os.readlink(f"/proc/self/fd/{arguments[1]}"), os.fsdecode(arguments[0]))]  # noqa: PTH115, PTH118
        elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "shutil.rmtree"):
            paths = [arguments[0]]
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "pty.spawn"):
            cls._seen.append(f"{event} {arguments[0]!r}")
            return
        else:
            return
        for one in paths:
            if isinstance(one, int) or one is None:
                continue
            name = os.fsdecode(one)
            if name == "/dev/null":
                continue
            real = os.path.realpath(name)
            if not any(real == place or real.startswith(place + os.sep) for place in cls._allowed):
                cls._seen.append(f"{event} {name}")


def _raise_too_long(number: int, frame: FrameType | None) -> None:
    raise TooLongError


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TooLongError` in the code that runs; a call in C that never comes back ends the process with a traceback, after
    a time within which any host gets to the exception."""
    before = signal.signal(signal.SIGALRM, _raise_too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(4 * seconds + 120, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def judge(verdict: Verdict, name: str, command: Callable[[], Any], own: Path, seconds: float = SECONDS) -> None:
    """Run one case and add what became of it. `own`: the only folder in which it may write."""
    began = time.perf_counter()
    defect: str | None = None
    grown = peak_kib()
    with Outside.watched(own) as written:
        try:
            with time_limit(seconds):
                command()
        except DynotuneError as error:
            defect = _bad_message(str(error))
            if defect is None:
                verdict.refused[_place_of(error)] += 1
        except TooLongError:
            defect = f"took more than {seconds:g} s"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            defect = f"{type(error).__module__}.{type(error).__name__} at {_place_of(error)}: {str(error)[:300]!r}"
        else:
            verdict.taken += 1
    grown = peak_kib() - grown
    problems = [defect] if defect else []
    if written:
        problems.append(f"wrote outside of its folder: {sorted(set(written))[:5]}")
    if grown * 1024 > MEMORY:
        problems.append(f"grew by {grown / 1024:,.0f} MiB")
    if problems and defect is None:
        verdict.taken = max(0, verdict.taken - 1)
    if problems:
        verdict.defects.append(f"{name}: {'; '.join(problems)}")
    verdict.slowest = max(verdict.slowest, time.perf_counter() - began)


def _bad_message(text: str) -> str | None:
    if not text.strip():
        return "refused without a word"
    if len(text) > LONGEST_MESSAGE:
        return f"refused in {len(text):,} characters"
    raw = [c for c in text if not c.isprintable() and c != "\n"]
    return f"a message with raw {raw[:4]!r}: {text[:200]!r}" if raw else None


def _place_of(error: BaseException) -> str:
    """The class and the last line of ours that it came through."""
    place, trace = "?", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if "dynotune" in file and "tests" not in Path(file).parts:
            place = f"{Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} {place}"
