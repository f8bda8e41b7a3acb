"""Runs that are disturbed, and what must be true of what they leave."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from safetensors.torch import load_file

from dynotune.train.checkpoints.contents import damage_of
from dynotune.train.folder.run_manifest import damage_of_run
from tests.faults.server import PHASES
from tests.tiny import chats, tiny_model, tiny_tokenizer

STEPS = 18


@dataclass
class Outcome:
    code: int
    """The exit status; negative: the signal that killed it."""

    phase: str
    saved: int
    """The step of the last checkpoint whose writing ended."""

    said: str
    seconds: float


@dataclass
class Server:
    process: "subprocess.Popen[str]"

    def run(self, job: dict[str, Any], kill_after: float | None = None) -> Outcome:
        """One run; `kill_after`: seconds until it is killed, where it still runs."""
        assert self.process.stdin is not None
        phase, said = Path(job["phase"]), Path(job["said"])
        phase.write_bytes(bytes(16))
        said.write_text("")
        began = time.perf_counter()
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        child = self._read()["pid"]
        if kill_after is not None:
            time.sleep(kill_after)
            with suppress(ProcessLookupError):  # it was quicker
                os.kill(child, signal.SIGKILL)
        status = self._read()["status"]
        seconds = time.perf_counter() - began
        seen = phase.read_bytes()
        return Outcome(status, PHASES[seen[0]], int.from_bytes(seen[8:], "little"), said.read_text(), seconds)

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the server of runs has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def server(errors: IO[str], **environment: str) -> Iterator[Server]:
    """A warm server. Its own complaints go to `errors`."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env=env,
    )
    try:
        yield Server(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=300)


@dataclass
class Story:
    """One run folder and all that is done to it."""

    folder: Path
    inputs: Path
    more: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    newest: int = 0

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def next(self, **job: Any) -> dict[str, Any]:
        """The job of a user who goes on where something is left, and starts again where nothing is."""
        self.folder.mkdir(exist_ok=True)
        going_on = bool(self.checkpoints())
        config = {
            "model_name_or_path": str(self.inputs / "model"),
            "dataset_name": str(self.inputs / "chats.jsonl"),
            "eval_dataset_name": str(self.inputs / "held-out.jsonl"),
            "output_dir": str(self.run),
            "max_steps": STEPS,
            "per_device_train_batch_size": 2,
            "save_steps": 2,
            "save_total_limit": 2,
            "eval_strategy": "steps",
            "eval_steps": 5,
            "logging_steps": 3,
            "learning_rate": 1e-2,
            "use_cpu": True,
            "use_peft": True,
            "lora_r": 4,
            "lora_dropout": 0.2,
            "lora_target_modules": "all-linear",
            "resume_from_checkpoint": True if going_on else None,
            "overwrite_output_dir": not going_on,
            **self.more,
        }
        return {
            "config": config,
            "cache": str(self.folder / "cache"),
            "phase": str(self.folder.parent / "phase"),
            "said": str(self.folder.parent / "said"),
            **self.job,
            **job,
        }

    def checkpoints(self) -> list[Path]:
        """Those under their names, and those that stepped aside a moment before the process died."""
        found = [*(self.run / "checkpoints").glob("step-*"), *(self.run / "checkpoints").glob(".step-*.old")]
        return sorted(found, key=_step_of)


def _step_of(path: Path) -> int:
    return int(path.name.strip(".").removesuffix(".old").removeprefix("step-"))


def inputs(folder: Path) -> Path:
    """A model and data, as a user has them."""
    folder.mkdir()
    tiny_model().save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(24)))
    (folder / "held-out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(6, seed=9)))
    return folder


def rows(run: Path) -> list[tuple[Any, ...]]:
    """metrics.jsonl without times."""
    keys = ("step", "loss", "grad_norm", "learning_rate", "num_tokens", "label_tokens", "eval_loss")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [tuple(line.get(key) for key in keys) for line in lines]


def what_is_wrong_now(story: Story, whole: Path, saved: int) -> list[str]:
    """Right after a disturbance. `whole`: the undisturbed run, with every checkpoint. `saved`: as in `Outcome`."""
    wrong = []
    there = story.checkpoints()
    for path in there:
        if damage := damage_of(path):
            wrong.append(f"{path.name} has the name of a checkpoint and is none: {damage[0]}")
            continue
        twin = whole / "checkpoints" / f"step-{_step_of(path)}"
        for name in ("trainable.safetensors", "training.safetensors"):
            mine, theirs = load_file(path / name), load_file(twin / name)
            if mine.keys() != theirs.keys() or not all(mine[key].equal(theirs[key]) for key in mine):
                wrong.append(f"{path.name}: {name} is not what the undisturbed run saved")
    newest = max((_step_of(path) for path in there), default=0)
    if newest < max(saved, story.newest):
        wrong.append(f"the checkpoint of step {max(saved, story.newest)} is lost; the newest is that of {newest}")
    story.newest = newest
    return wrong


def what_is_wrong_at_the_end(story: Story, whole: Path) -> list[str]:
    wrong = []
    if rows(story.run) != rows(whole):
        wrong.append(f"metrics.jsonl differs: {rows(story.run)} and {rows(whole)}")
    adapter = "adapter/adapter_model.safetensors"
    if (story.run / adapter).read_bytes() != (whole / adapter).read_bytes():
        wrong.append("the final adapter differs")
    return wrong + damage_of_run(story.run)
