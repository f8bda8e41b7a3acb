"""Promise: a checkpoint that is written beside training holds the moment it was asked for, and its failure is not lost."""

import re
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from dynotune.errors import TrainingError
from dynotune.train.checkpoints import contents, room
from dynotune.train.checkpoints.background import Background
from dynotune.train.checkpoints.checkpoints import Checkpoints
from dynotune.train.checkpoints.contents import damage_of
from dynotune.train.checkpoints.snapshot import HostCopies
from tests.tiny import tiny_model

SAVES = {"save_strategy": "steps", "save_steps": 2}
LORA = {"use_peft": True, "lora_r": 4, "lora_target_modules": "all-linear"}
KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": LORA,
    "dora": {**LORA, "use_dora": True, "lora_target_modules": ["q_proj"]},
    "head trained in full": {**LORA, "lora_modules_to_save": ["lm_head"]},
    "new tokens": {**LORA, "added_tokens": ["<new1>", "<new2>"]},
    "adafactor": {"optim": "adafactor"},
}


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny checkpoints are written beside training, too."""
    monkeypatch.setattr(room, "WORTH_A_THREAD", 0)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The first write begins only when this is set."""
    go, write = threading.Event(), contents.write

    def later(*args: Any) -> Any:
        assert go.wait(600)
        return write(*args)

    monkeypatch.setattr(contents, "write", later)
    return go


def files(checkpoint: Path) -> dict[str, bytes]:
    return {p.relative_to(checkpoint).as_posix(): p.read_bytes() for p in checkpoint.rglob("*") if p.is_file()}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_same_bytes_are_written_as_when_training_waits(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    settings = {"max_steps": 4, **SAVES, **KINDS[kind]}

    def model() -> Any:
        return tiny_model(tie_word_embeddings=kind == "full")

    run_tiny(model=model(), output_dir=str(tmp_path / "waits"), **settings)
    monkeypatch.setattr(room, "WORTH_A_THREAD", 0)
    threads: list[str] = []
    write = contents.write

    def watched(*args: Any) -> Any:
        threads.append(threading.current_thread().name)
        return write(*args)

    monkeypatch.setattr(contents, "write", watched)
    run_tiny(model=model(), output_dir=str(tmp_path / "beside"), **settings)
    assert [name.startswith("dynotune-checkpoint") for name in threads] == [True, True]
    for step in (2, 4):
        a, b = (files(tmp_path / run / "checkpoints" / f"step-{step}") for run in ("waits", "beside"))
        assert a.keys() == b.keys()
        differ = {name for name in a if a[name] != b[name]}
        # `state.json` holds the two output folders and times, and the manifest its checksum.
        assert differ <= {"state.json", "manifest.json"}


def test_training_on_does_not_change_what_is_written(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: None, held: threading.Event
) -> None:
    """The write of step 2 is held until step 3 is done; with live tensors instead of copies the test fails (below)."""
    moved = _first_written(run_tiny, tmp_path / "copies", held)
    assert moved
    monkeypatch.setattr(HostCopies, "__call__", lambda self, name, tensor: tensor)
    held.clear()
    assert not _first_written(run_tiny, tmp_path / "live", held)


def _first_written(run_tiny: Any, out: Path, go: threading.Event) -> bool:
    """Whether the checkpoint of step 2 holds the weights and states of step 2."""
    from transformers import TrainerCallback

    then: dict[str, Any] = {}

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.global_step == 2:
                then.update({f"w/{n}": p.detach().clone() for n, p in more["model"].named_parameters()})
                names = {id(p): n for n, p in more["model"].named_parameters()}
                for p, values in more["optimizer"].state.items():
                    then[f"optimizer/{names[id(p)]}/exp_avg"] = values["exp_avg"].clone()
            if state.global_step == 3:
                go.set()

    run_tiny(output_dir=str(out), max_steps=4, callbacks=[Watch()], **SAVES)
    checkpoint = out / "checkpoints" / "step-2"
    assert damage_of(checkpoint) == []
    weights, states = (
        load_file(checkpoint / "model" / "model.safetensors"),
        load_file(checkpoint / "training.safetensors"),
    )
    same = [torch.equal(weights[name], then[f"w/{name}"]) for name in weights]
    same += [torch.equal(states[name], then[name]) for name in states if name.endswith("/exp_avg")]
    assert len(same) > 20
    return all(same)


def test_a_failed_write_is_said_and_training_goes_on(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: None
) -> None:
    real, writes = contents.save_file, 0

    def full(*args: Any) -> None:
        nonlocal writes
        writes += 1
        if writes > 1:
            raise OSError(28, "No space left on device")
        real(*args)

    monkeypatch.setattr(contents, "save_file", full)
    console = Console(record=True, width=500, file=(tmp_path / "said").open("w"))
    run_tiny(console=console, **SAVES)
    said = console.export_text()
    assert re.search(r"warning: .*step 4.*No space left.*newest complete one is .*step-2.*without protection", said)
    assert sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir()) == ["step-2"]
    monkeypatch.setattr(contents, "save_file", real)
    assert run_tiny(resume_from_checkpoint=True, **SAVES).steps == 6


def test_an_error_in_training_waits_for_the_write(
    run_tiny: Any, tmp_path: Path, beside: None, held: threading.Event
) -> None:
    from transformers import TrainerCallback

    class Fail(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 3:
                threading.Timer(0.2, held.set).start()
                raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        run_tiny(callbacks=[Fail()], **SAVES)
    assert damage_of(tmp_path / "run" / "checkpoints" / "step-2") == []


def test_who_is_called_at_a_save_finds_a_finished_checkpoint(run_tiny: Any, tmp_path: Path, beside: None) -> None:
    from transformers import TrainerCallback

    found: list[list[str]] = []

    class Saved(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            found.append(damage_of(tmp_path / "run" / "checkpoints" / f"step-{state.global_step}"))

    run_tiny(callbacks=[Saved()], **SAVES)
    assert found == [[], [], []]


def test_looking_waits_for_what_is_being_written(tmp_path: Path) -> None:
    background, done = Background(), threading.Event()
    background.begin(lambda: done.wait(600) or None)  # type: ignore[func-returns-value]
    assert background.busy
    threading.Timer(0.1, done.set).start()
    background.settle()
    assert done.is_set()
    background.wait()

    def fail() -> None:
        raise TrainingError("full")

    background.begin(fail)
    background.settle()
    with pytest.raises(TrainingError, match="full"):
        background.check()
    background.check()  # raised once
    background.begin(fail)
    assert isinstance(background.close(), TrainingError)


def test_one_that_was_asked_to_wait_is_there_at_once(run_tiny: Any, tmp_path: Path, beside: None) -> None:
    from transformers import TrainerCallback

    seen: list[bool] = []
    real = Checkpoints.save

    def save(self: Checkpoints, trainee: Any, **_: Any) -> Path:
        path = real(self, trainee, wait=True)
        seen.append(damage_of(path) == [])
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        run_tiny(callbacks=[TrainerCallback()], **SAVES)
    assert seen == [True, True, True]
