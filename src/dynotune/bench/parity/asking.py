"""Asks arms their questions, in processes of their own: what a configuration does to a process is then in the answers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from dynotune.bench.asking.arms import Arm, between
from dynotune.bench.parity.probe import Request, answer
from dynotune.bench.parity.question import Answer, Asked
from dynotune.bench.workers.hand import PATIENCE, ArmFailedError, last_lines, short_line, write
from dynotune.config.variables import without_exported
from dynotune.speedups.contract import Scope
from dynotune.speedups.registry import speedups

STAYS = frozenset({"env", "tf32", "full_determinism", "use_cpu", "trust_remote_code"})
"""Keys whose value stays in a process that has run by it once."""


class Ask(Protocol):
    """Answers in the order of the questions. Raises `ArmFailedError`."""

    def __call__(self, arm: Arm, questions: Sequence[Asked], folder: Path) -> list[Answer]: ...


class Processes:
    """One process for each arm; one for both where nothing in which they differ stays in a process. A context manager."""

    def __init__(self, first: Arm, other: Arm, imports: Sequence[str] = ()) -> None:
        """imports: modules that each process imports first."""
        self.shared, self.imports = share(first, other), tuple(imports)
        self.running: dict[str, _Process] = {}

    def __call__(self, arm: Arm, questions: Sequence[Asked], folder: Path) -> list[Answer]:
        folder.mkdir(parents=True, exist_ok=True)
        name = "both" if self.shared else arm.name
        if name not in self.running:
            self.running[name] = _Process(folder / "probe.log", arm.config.env)
        request, config = folder / "request.json", write(arm, folder)
        Request(str(config), arm.config.method.command, str(folder), list(questions), self.imports).write(request)
        self.running[name].do(request)
        return [Answer.read(folder / f"{one.name}.safetensors") for one in questions]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.running.values():
            process.close()


class _Process:
    """A process of probes, and the pipes to it."""

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        answers, theirs = os.pipe()
        with log.open("wb") as out:
            self.process = subprocess.Popen(  # noqa: S603  (this program)
                [sys.executable, "-P", "-m", "dynotune.bench.parity.probe", str(theirs)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs,),
                env={**without_exported(), **environment},
            )
        os.close(theirs)
        self.answers = os.fdopen(answers, encoding="utf-8")

    def do(self, request: Path) -> None:
        """Raises `ArmFailedError` where the process ends over it."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(str(request)).encode() + b"\n")
            self.process.stdin.flush()
            done = self.answers.readline()
        except BrokenPipeError:
            done = ""
        if done:
            return
        code, said = self.process.wait(), last_lines(self.log)
        short = code == -signal.SIGKILL or bool(short_line(said))
        ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise ArmFailedError(f"its probe ended ({ended}): {said}", "memory" if short else "bug", self.log)

    def close(self) -> None:
        """End the process; twice is once."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.answers.close()


def share(first: Arm, other: Arm) -> bool:
    """Whether both arms may be asked in one process, the first one first."""
    keys = between(first.config, other.config)
    stays = [one for one in keys.not_in_process if one.startswith("speedups.")]
    asked = [name for name, one in speedups().items() if one.scope is Scope.PROCESS and one.asked(other.config)]
    return not (stays or asked or STAYS & keys.changed.keys() or first.config.env != other.config.env)


def in_this_process(arm: Arm, questions: Sequence[Asked], folder: Path) -> list[Answer]:
    """Where a process a probe costs more than it shows: tests, and speed-ups that only this process has."""
    return [answer(arm.config, one, folder) for one in questions]
