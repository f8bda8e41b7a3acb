"""The run folder: everything a run leaves behind, each file written whole or not at all."""

import errno
import json
import math
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from dynotune.errors import ConfigError, TrainingError
from dynotune.manifest import MANIFEST
from dynotune.printable import printable
from dynotune.train.folder.lines import Lines
from dynotune.train.folder.run_manifest import GROWING, damage_of_run, seal_run

LEAVINGS = ("metrics.jsonl", "checkpoints", "model", "adapter")
"""What makes a folder one that holds a run."""

BESIDES = (
    "metrics.repeated.jsonl",
    "samples.jsonl",
    "warnings.jsonl",
    "engagement.json",
    "summary.json",
    "loss.svg",
    "README.md",
    "quarantine.jsonl",
    "nonfinite.json",
)
"""What a new run removes where it may replace an old one."""

MADE_AGAIN = ("report.html",)
"""What a command may write once more at any time: it is removed as well, and has no checksum in the manifest."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)

NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)

AT_START = ("config.yaml", "environment.json", "plan.json", "ledger.json")
"""What a run writes before its first step."""

WRITTEN = (*AT_START, *BESIDES, *MADE_AGAIN, MANIFEST)
"""Names that a run writes at the top of its folder."""


def fresh_folder(kind: str) -> Path:
    """A new folder `runs/KIND-DATE-TIME`, also where another run began in the same second or the clock was set back."""
    name = time.strftime(f"{kind}-%Y%m%d-%H%M%S")
    number = 1
    while True:
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise ConfigError(f"{path} cannot be made: {error.strerror}. Set `output_dir`.") from error
        else:
            return path


def held_lock(folder: Path) -> BaseFileLock:
    """The folder's lock, held by this process; it lets go when it dies. Raises `Timeout` where another one holds it.

    Some network file systems know no locks. There the lock is a file that names its holder, which is taken over where that
    process, of this machine, has died.
    """
    lock: BaseFileLock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except (NotImplementedError, OSError) as error:
        if isinstance(error, Timeout) or (isinstance(error, OSError) and error.errno not in NO_LOCKS):
            raise
        lock = SoftFileLock(folder / ".lock.held")
        lock.acquire(timeout=0)
    return lock


class RunFolder:
    """Paths and small files of one run. One process at a time: the folder is locked until `release`."""

    def __init__(self, path: Path, replaces: bool = False, writes: bool = True) -> None:
        """replaces: the folder holds an earlier run, which `begin` will remove. writes: False for all ranks but the first:
        what they are told to write there, the first one writes."""
        self.path, self.replaces, self.writes = path, replaces, writes
        self.starting = path / ".starting"
        """Where files are kept until the run begins."""
        self.metrics, self.checkpoints = path / "metrics.jsonl", path / "checkpoints"
        self.lines = Lines(path)
        self.lock: BaseFileLock = FileLock(path / ".lock")
        self.begun = False
        self.finished: Path | None = None
        """The final model or adapter, once it is there."""

    @classmethod
    def open(cls, output_dir: str | None, overwrite: bool, resume: str | bool | None, kind: str = "sft") -> "RunFolder":
        """Make the folder, or refuse one that holds another run which would be lost. kind: begins a new one's name."""
        path = Path(output_dir) if output_dir else fresh_folder(kind)
        if not str(path).isprintable():
            raise ConfigError(
                f"`output_dir: {printable(str(path))}` holds characters that cannot be printed. Rename it."
            )
        held = [name for name in LEAVINGS if (path / name).exists()]
        ours = held or (path / "plan.json").exists()
        foreign = [] if ours else [name for name in WRITTEN if (path / name).exists()]
        if foreign or (path / "config.json").exists():
            raise ConfigError(
                f"`output_dir: {path}` holds {', '.join(foreign or ['config.json'])}, which no run of Dynotune wrote: a run"
                " would replace or mix it up. Name an empty folder."
            )
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
        try:
            folder.lock = held_lock(path)
        except Timeout as error:
            raise ConfigError(
                f"Another process is writing a run into `output_dir: {path}`. Wait for it, or name another folder."
            ) from error
        except OSError as error:
            raise ConfigError(
                f"`output_dir: {path}` cannot be locked: {error.strerror}. Name another folder."
            ) from error
        shutil.rmtree(folder.starting, ignore_errors=True)
        try:
            folder.starting.mkdir()
        except OSError as error:
            folder.release()
            raise ConfigError(f"`output_dir: {path}` cannot be written: {error.strerror}. Name another one.") from error
        return folder

    def release(self) -> None:
        """Let other processes have the folder. A process that dies lets go by itself."""
        self.lock.release()

    def refuse_inputs_inside(self, inputs: Mapping[str, str]) -> None:
        """A run that replaces another must not remove what it reads: `inputs` are values of keys that may name paths."""
        if not self.replaces:
            return
        here = self.path.resolve()
        for key, value in inputs.items():
            path = Path(value)
            if path.exists() and here in (path.resolve(), *path.resolve().parents):
                raise ConfigError(
                    f"`{key}: {value}` lies in `output_dir: {self.path}`, whose run is to be replaced: it would be removed."
                    " Name another `output_dir`."
                )

    @property
    def removed_at_begin(self) -> list[Path]:
        """What `begin` removes."""
        return [self.path / name for name in (*LEAVINGS, *BESIDES, *MADE_AGAIN, MANIFEST)] if self.replaces else []

    def begin(self) -> None:
        """The run takes its first step now: what it replaces goes, what was kept aside comes in.

        Everything that can be refused has been by then, so a run that fails before costs the old one nothing.
        """
        if not self.writes:
            return
        for target in self.removed_at_begin:
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
        for file in self.starting.iterdir():
            file.replace(self.path / file.name)
        self.starting.rmdir()
        self.begun = True

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        self.write_text(name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Replace a file in one motion: a reader sees the old one or the new one."""
        if not self.writes:
            return
        target = self.path / name
        half = target.with_name(f".{target.name}.{os.getpid()}")
        half.write_text(text, encoding="utf-8")
        half.replace(target)

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Add one line to a .jsonl file."""
        if self.writes:
            self.lines.append(name, row)

    def in_words(self, error: OSError) -> str | None:
        """What a failure to write says to people; None where it has nothing to do with this folder or a full disk."""
        path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
        inside = path is not None and path.resolve().is_relative_to(self.path.resolve())
        if not inside and (path is not None or error.errno not in NO_ROOM):
            return None
        state = "the model is saved" if self.finished else "checkpoints that are there are whole"
        return (
            f"{path or self.path} cannot be written: {error.strerror or error}. Make room or give back the right to write; "
            f"{state}, and the same command goes on with `resume_from_checkpoint: true`."
        )

    def settle(self) -> None:
        """The lines that were added are on the disk, as far as there is room: a checkpoint must not get ahead of them."""
        self.lines.settle()

    def require_lines(self) -> None:
        """At the end of the run: raises `TrainingError` where lines are still only in memory."""
        if not self.lines.settle():
            raise TrainingError(
                f"{self.lines.left} lines of {', '.join(sorted(n for n, rows in self.lines.waiting.items() if rows))} in"
                f" {self.path} could not be written, and are lost. Checkpoints and model are not concerned."
            )

    def seal(self, step: int, done: bool = False) -> None:
        """Write the checksums of what is there now; with `done`, of the final model too."""
        if not self.writes:
            return
        names = (*AT_START, *BESIDES, "metrics.jsonl") if done else (*AT_START, *GROWING)
        try:
            seal_run(self.path, names, {"step": step}, done)
        except OSError as error:
            raise TrainingError(
                f"{self.path / MANIFEST} cannot be written ({error.strerror}). Checkpoints are safe; make room, then go on"
                " with `resume_from_checkpoint: true`."
            ) from error

    def unseal(self) -> list[str]:
        """Before a run goes on: take the manifest away. Returns what was not as it had been sealed, a sentence each."""
        if not (self.path / MANIFEST).exists():
            return []
        wrong = damage_of_run(self.path)
        (self.path / MANIFEST).unlink()
        return wrong

    def seconds_behind(self, step: int) -> float:
        """Wall time of the rows of metrics behind `step`."""
        if not self.metrics.exists():
            return 0.0
        lines = self.metrics.read_text(encoding="utf-8", errors="replace").splitlines()
        rows = [json.loads(line) for line in lines if step < _step_of(line) < math.inf]
        return sum(float(row.get("wall_seconds") or 0.0) for row in rows)

    def forget_after(self, step: int, evaluation_too: bool = False, row_at: int | None = None) -> list[dict[str, Any]]:
        """On resume, move metrics of steps that will be done again to `metrics.repeated.jsonl`; return the rows that stay.

        A last line that a crash tore is moved along. `evaluation_too`: so will the evaluation of `step` itself. `row_at`: so
        will the row of training that ends with that step, which the checkpoint was written before: it holds the steps.
        """
        if not self.metrics.exists():
            return []
        kept: list[str] = []
        later: list[str] = []
        for line in self.metrics.read_text(encoding="utf-8", errors="replace").splitlines():
            number = _step_of(line)
            again = evaluation_too and number == step and "eval_seconds" in json.loads(line)
            again = again or (number == row_at and "loss" in json.loads(line))
            (later if again or number > step else kept).append(line)
        if later:
            with (self.path / "metrics.repeated.jsonl").open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in later)
            self.write_text("metrics.jsonl", "".join(f"{line}\n" for line in kept))
        return [json.loads(line) for line in kept]


def _step_of(line: str) -> float:
    """The step of a row of metrics.jsonl; infinity for a line that is no row."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf
