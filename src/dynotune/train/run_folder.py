"""The run folder: everything a run leaves behind, each file written whole or not at all."""

import json
import math
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynotune.errors import ConfigError

LEAVINGS = ("metrics.jsonl", "checkpoints", "model", "adapter")
"""What makes a folder one that holds a run."""

BESIDES = ("metrics.repeated.jsonl", "samples.jsonl", "summary.json", "loss.svg", "README.md", "quarantine.jsonl")
"""What a new run removes where it may replace an old one."""


class RunFolder:
    """Paths and small files of one run."""

    def __init__(self, path: Path, replaces: bool = False) -> None:
        """`replaces`: the folder holds an earlier run, which `begin` will remove."""
        self.path, self.replaces = path, replaces
        self.starting = path / ".starting"
        """Where files are kept until the run begins."""
        self.metrics, self.checkpoints = path / "metrics.jsonl", path / "checkpoints"

    @classmethod
    def open(cls, output_dir: str | None, overwrite: bool, resume: str | bool | None, kind: str = "sft") -> "RunFolder":
        """Make the folder, or refuse one that holds another run which would be lost."""
        path = Path(output_dir) if output_dir else Path("runs") / time.strftime(f"{kind}-%Y%m%d-%H%M%S")
        held = [name for name in LEAVINGS if (path / name).exists()]
        if held and not resume and not overwrite:
            raise ConfigError(
                f"`output_dir: {path}` already holds a run ({', '.join(held)}). Go on with it"
                " (`resume_from_checkpoint: true`), replace it (`overwrite_output_dir: true`), or name another folder."
            )
        if held and isinstance(resume, str) and resume.lower() != "true" and not overwrite:
            inside = (path / "checkpoints").resolve()
            if Path(resume).resolve().parent != inside:
                raise ConfigError(
                    f"`resume_from_checkpoint: {resume}` belongs to another run than the one in `output_dir: {path}`, which"
                    " would be mixed up with it. Name that run's folder as `output_dir`, or an empty one."
                )
        try:
            path.mkdir(parents=True, exist_ok=True)
            probe = path / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise ConfigError(
                f"`output_dir: {path}` cannot be written: {error.strerror}. Name another folder."
            ) from error
        folder = cls(path, replaces=bool(held) and not resume)
        shutil.rmtree(folder.starting, ignore_errors=True)
        folder.starting.mkdir()
        return folder

    def begin(self) -> None:
        """The run takes its first step now: what it replaces goes, what was kept aside comes in.

        Everything that can be refused has been by then, so a run that fails before costs the old one nothing.
        """
        for name in (*LEAVINGS, *BESIDES) if self.replaces else ():
            target = self.path / name
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
        for file in self.starting.iterdir():
            file.replace(self.path / file.name)
        self.starting.rmdir()

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        self.write_text(name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Replace a file in one motion: a reader sees the old one or the new one."""
        target = self.path / name
        half = target.with_name(f".{target.name}.{os.getpid()}")
        half.write_text(text, encoding="utf-8")
        half.replace(target)

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Add one line to a .jsonl file."""
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def forget_after(self, step: int) -> None:
        """On resume, move metrics of steps that will be done again to `metrics.repeated.jsonl`.

        A last line that a crash tore is moved along.
        """
        if not self.metrics.exists():
            return
        kept: list[str] = []
        later: list[str] = []
        for line in self.metrics.read_text(encoding="utf-8").splitlines():
            (kept if _step_of(line) <= step else later).append(line)
        if later:
            with (self.path / "metrics.repeated.jsonl").open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in later)
            self.write_text("metrics.jsonl", "".join(f"{line}\n" for line in kept))


def _step_of(line: str) -> float:
    """The step of a row of metrics.jsonl; infinity for a line that is no row."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf
