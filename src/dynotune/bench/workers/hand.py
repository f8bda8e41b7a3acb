"""The other end of a worker: starts its process, gives orders, gets answers."""

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dynotune.bench.asking.arms import Arm
from dynotune.bench.workers.door import address
from dynotune.config.variables import without_exported
from dynotune.errors import DynotuneError, TrainingError

PATIENCE = 30.0
"""Seconds for a process to end when it is told to."""

OF_RANKS = 60
"""Lines of a log in which it is looked for why ranks ended: each prints where it stood."""

SHORT = re.compile(
    r"^[\w.]*MemoryError(?::|\s*$)"  # an exception's line: Python's, PyTorch's, numpy's
    r"|(?:^|(?:error|exception|exhausted): )out of memory"  # `CUDA error: out of memory`, `TrainingError: out of memory in`
    r"|(?:CUDA|HIP|XPU) out of memory\. Tried|MPS backend out of memory \(|Cuda failure.* 'out of memory'"
    r"|CUDA_ERROR_OUT_OF_MEMORY|CU\w+_STATUS_ALLOC_FAILED|std::bad_alloc"
    r"|(?:cannot|can't) allocate memory|DefaultCPUAllocator: not enough memory",
    re.IGNORECASE,
)
"""By which a line says that memory ran out. The words alone also stand in tips."""

_RANK = re.compile(r"^\[(?:rank|default)?\d+\]:\s?")
"""Before each line of one of several processes."""

_TRACE = "Traceback (most recent call last)"
_CAUSE = "The above exception was the direct cause"
_LAUNCHERS = re.compile(r"^[\w.]*(?:ChildFailedError|CalledProcessError)\b")
"""What a launcher dies of behind a process of its own."""


class ArmFailedError(DynotuneError):
    """An arm could not be measured. `kind`: `memory`, `user` or `bug`."""

    def __init__(self, text: str, kind: str, log: Path) -> None:
        super().__init__(text)
        self.kind, self.log = kind, log


class Hand:
    """A worker process. A context manager; at its end the process is gone."""

    def __init__(self, arm: Arm, folder: Path, number: int, environment: dict[str, str]) -> None:
        """arm: whose configuration sets the process up. folder: for its log, its run folder and the arms' files."""
        self.folder = folder
        self.log = folder / f"worker-{number}.log"
        self.run_folder = folder / f"worker-{number}"
        path = folder / f"worker-{number}.sock"
        with socket.socket(socket.AF_UNIX) as door, self.log.open("wb") as log:
            with address(path) as short:
                door.bind(short)
            door.listen(1)
            door.settimeout(0.2)
            self.process = subprocess.Popen(  # noqa: S603  (this program)
                [
                    sys.executable,
                    "-P",  # a file in the current folder is not taken for a module of the same name
                    "-m",
                    "dynotune.bench.workers.worker",
                    str(path),
                    str(write(arm, folder)),
                    method_of(arm),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**without_exported(), **environment, **arm.config.env},
            )
            self._speaking = self._answered(door)
        self._orders = self._speaking.makefile("w", encoding="utf-8")
        self._answers = self._speaking.makefile("r", encoding="utf-8")
        self.device = self._receive()

    def _answered(self, door: socket.socket) -> socket.socket:
        """The connection that the process makes when it has started."""
        while True:
            try:
                speaking, _ = door.accept()
            except TimeoutError:
                if self.process.poll() is not None:
                    raise self._gone() from None
            else:
                speaking.setblocking(True)
                return speaking

    def stand(self, arm: Arm, shares: bool = True) -> dict[str, Any]:
        """Put this arm in, and out what stood. shares: as `Stage.stand`."""
        path, folder = str(write(arm, self.folder)), str(self.run_folder)
        return self.do("stand", name=arm.name, method=method_of(arm), path=path, folder=folder, shares=shares)

    def do(self, what: str, **order: Any) -> dict[str, Any]:
        """Raises `ArmFailedError`; the process is of no use behind it."""
        self._send({"do": what, **order})
        answer = self._receive()
        if "error" in answer:
            error = answer["error"]
            raise ArmFailedError(error["text"], error["kind"], self.log)
        value: dict[str, Any] = answer["value"]
        return value

    def _send(self, order: dict[str, Any]) -> None:
        try:
            self._orders.write(json.dumps(order) + "\n")
            self._orders.flush()
        except BrokenPipeError:
            raise self._gone() from None

    def _receive(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise self._gone()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _gone(self) -> ArmFailedError:
        code = self.process.wait()
        ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        told = last_lines(self.log)
        if short := short_line(last_lines(self.log, OF_RANKS)):  # of several ranks one that has no answer to give
            return ArmFailedError(f"{short} (its process ended: {ended})\n{told}", "memory", self.log)
        text = f"its process ended ({ended}); the end of what it printed:\n{told}"
        return ArmFailedError(text, "memory" if code == -signal.SIGKILL else "bug", self.log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process; twice is once."""
        if self.process.poll() is None:
            try:
                self._send({"do": "end"})
                self._orders.close()
                self.process.wait(PATIENCE)
            except (ArmFailedError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        self._speaking.close()


def method_of(arm: Arm) -> str:
    """Name of what its configuration is of."""
    return str(arm.config.method.command)


def write(arm: Arm, folder: Path) -> Path:
    """The arm's configuration as a file that only this user can read. Tokens and `env` are not in it: a bench writes to
    nobody who would ask for one, and processes get variables as such. What lies within other keys is: a model or data may
    need it."""
    path = folder / f"arm-{''.join(c if c.isalnum() else '-' for c in arm.name)[:60]}.yaml"
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(arm.config.to_yaml(nested_secrets=True), encoding="utf-8")
    return path


def short_line(text: str) -> str:
    """The line that says that memory ran out, of what a process died of: of each rank's output the last traceback, with its
    direct causes; all of it where there is none. Empty where no line does."""
    of_ranks: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        rank = found[0] if (found := _RANK.match(line)) else ""
        parts, line = of_ranks.setdefault(rank, [[]]), line[len(rank) :]
        if line.startswith(_TRACE) and not any(_CAUSE in one for one in parts[-1][-3:]):
            parts.append([])
        parts[-1].append(line.rstrip())
    for parts in of_ranks.values():
        own = [part for part in parts if not any(_LAUNCHERS.match(line) for line in part)]
        for line in own[-1] if own else ():
            if SHORT.search(line) and not line.startswith("  "):  # indented: source code
                return line.strip()
    return ""


def last_lines(log: Path, lines: int = 12) -> str:
    """Of a log: what explains how a process ended."""
    try:
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError as error:
        raise TrainingError(f"{log} cannot be read: {error.strerror}.") from error
