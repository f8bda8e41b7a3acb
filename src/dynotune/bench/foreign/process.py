"""Runs a command to its end, in a session of its own, so that all of it can be ended: a launcher's children too."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from dynotune.bench.workers.hand import OF_RANKS, PATIENCE, ArmFailedError, last_lines, short_line
from dynotune.errors import ConfigError
from dynotune.foreign import ended_by

LOOK = 1.0
"""Seconds between two looks at which processes a command has."""

KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


@dataclass(slots=True)
class Ran:
    """A command that ended well."""

    began: float
    """As `time.perf_counter` has it."""

    ended: float
    processes: set[int] = field(default_factory=set)
    """That it was seen to have."""

    @property
    def wall(self) -> float:
        """Seconds of the whole process."""
        return self.ended - self.began


def run(words: Sequence[str], folder: Path, environment: Mapping[str, str], output: Path, errors: Path) -> Ran:
    """No shell reads the words. output, errors: files for its two streams.

    Raises `ArmFailedError` where it fails, `ConfigError` where there is no such command.
    """
    with output.open("wb") as out, errors.open("wb") as err:
        began = time.perf_counter()
        try:
            process = subprocess.Popen(  # noqa: S603  (the user's own command)
                words, cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ConfigError(f"`{words[0]}` cannot be run: {error.strerror or error}.") from error
    ran = Ran(began, began)
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK)
                break
            ran.processes |= _tree(process.pid)
        ran.ended = time.perf_counter()
    finally:
        _end(process)
    if process.returncode:
        raise _failure(words, process.returncode, output, errors)
    ran.processes.add(process.pid)
    return ran


def _tree(pid: int) -> set[int]:
    with suppress(psutil.Error):
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return set()


def _end(process: subprocess.Popen[bytes]) -> None:
    """What is left of its session would run beside the next block, and hold its memory."""
    if process.poll() is None:  # the bench is left in the middle of a block
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _failure(words: Sequence[str], code: int, output: Path, errors: Path) -> ArmFailedError:
    ended = ended_by(code)
    told = last_lines(errors) if errors.stat().st_size else last_lines(output)
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    short = short_line(last_lines(errors, OF_RANKS) if errors.stat().st_size else last_lines(output, OF_RANKS))
    if short or code in KILLED:
        why = short or "so it seems, since it was killed"
        behind = f"; its last line: {lines[-1]}" if lines and lines[-1] != short else ""
        return ArmFailedError(f"out of memory: {why} ({ended}){behind}", "memory", errors)
    last = f": {lines[-1]}" if lines else ", without a word"
    rest = f"\nThe end of what it printed:\n{told}" if len(lines) > 1 else ""
    return ArmFailedError(f"`{shlex.join(words)}` failed ({ended}){last}{rest}", "user", errors)
