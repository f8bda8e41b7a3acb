"""Promise: a run that would fill the disk is refused before its first step, with sizes and with what helps."""

from collections import namedtuple
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dynotune.errors import TrainingError
from dynotune.train.cadence import Every
from dynotune.train.checkpoints import room
from tests.tiny import tiny_model

Usage = namedtuple("Usage", "total used free")
SAVES = {"save_strategy": "steps", "save_steps": 2}


@given(
    st.sampled_from(["steps", "epoch", "no"]), st.integers(1, 7), st.integers(1, 9), st.integers(1, 40),
    st.integers(0, 45), st.sampled_from([0, 1, 2.5, 12]), st.booleans(),
)  # fmt: skip
def test_as_many_are_counted_as_will_be_due(
    strategy: str, interval: int, per_epoch: int, total: int, after: int, delay: float, last: bool
) -> None:
    every = Every(strategy, interval, per_epoch, total, delay=delay, last=last)
    due = [
        step
        for step in range(after + 1, total + 1)
        if every.due(step) or ((step % per_epoch == 0 or step == total) and every.due_at_epoch_end(step))
    ]
    assert room.times(every, after) == len(due)


@pytest.mark.parametrize(
    ("to_come", "present", "limit", "best", "most"),
    [
        (5, 0, None, False, 5), (5, 0, 2, False, 3), (5, 2, 2, False, 1), (1, 0, 2, False, 1), (5, 0, 1, True, 3),
        (0, 3, 2, False, 0),
    ],
)  # fmt: skip
def test_the_worst_moment(to_come: int, present: int, limit: int | None, best: bool, most: int) -> None:
    assert room.most_at_once(to_come, present, limit, best) == most


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"optim": "sgd"}, {"optim": "sgd", "optim_args": "momentum=0.9"}, {"optim": "rmsprop"}, {"optim": "adafactor"},
        {"save_only_model": True}, {"use_peft": True, "lora_r": 8, "lora_target_modules": "all-linear"},
    ],
)  # fmt: skip
def test_sizes_are_those_that_are_written(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """A checkpoint is never larger than was said, and tensors are said to the byte but for their headers."""
    sizes: list[room.Sizes] = []
    real = room.sizes_of
    monkeypatch.setattr(room, "sizes_of", lambda *a: sizes.append(real(*a)) or sizes[-1])  # type: ignore[func-returns-value]
    run_tiny(model=tiny_model(hidden_size=128, intermediate_size=512), max_steps=2, **SAVES, **settings)
    written = sum(p.stat().st_size for p in (tmp_path / "run" / "checkpoints" / "step-2").rglob("*") if p.is_file())
    room_for_the_rest = room.OTHER_FILES + 400 * room.TOKENIZER_ROW
    assert sizes[0].checkpoint - room_for_the_rest <= written <= sizes[0].checkpoint


def test_too_small_a_disk_ends_the_run_before_its_first_step(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room.shutil, "disk_usage", lambda path: Usage(1 << 30, 0, 4 << 20))
    with pytest.raises(
        TrainingError, match=r"3 checkpoints.*bytes\).*has 4.0 MiB free.*`save_total_limit`.*save_steps"
    ) as error:
        run_tiny(**SAVES)
    assert "Nothing was trained" in str(error.value)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    with pytest.raises(TrainingError, match=r"2 checkpoints"):
        run_tiny(save_total_limit=1, overwrite_output_dir=True, **SAVES)
    # Negative control: with enough room, and with less to keep, it runs.
    assert run_tiny(save_strategy="no", overwrite_output_dir=True).steps == 6
    monkeypatch.undo()
    assert run_tiny(overwrite_output_dir=True, **SAVES).steps == 6


def test_room_of_a_run_that_is_replaced_counts(run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(hidden_size=256, intermediate_size=2048)  # some 17 MiB, so that the allowances do not matter
    run_tiny(model=model, save_strategy="steps", save_steps=2, save_total_limit=1)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda path: Usage(1 << 40, 0, 50 << 20))
    with pytest.raises(TrainingError, match="will keep 1 checkpoint"):
        run_tiny(model=model, output_dir=str(tmp_path / "other"), max_steps=1, **SAVES)
    assert run_tiny(model=model, overwrite_output_dir=True, max_steps=1, **SAVES).steps == 1


def test_a_file_system_that_tells_nothing_is_said(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Console(record=True, file=StringIO(), width=300)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda path: Usage(0, 0, 0))
    run_tiny(console=said, **SAVES)
    assert "tells no sizes" in said.export_text()


def test_too_little_memory_for_a_copy_makes_training_wait_and_says_so(
    run_tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "WORTH_A_THREAD", 0)
    for left, expected in (
        (1000, "while training waits: a copy of the state takes"),
        (1 << 40, "while training goes on"),
    ):
        monkeypatch.setattr(room, "memory_left", lambda left=left: left)
        said = Console(record=True, file=StringIO(), width=300)
        run_tiny(console=said, overwrite_output_dir=True, **SAVES)
        assert expected in said.export_text()


def test_a_containers_limit_counts(tmp_path: Path) -> None:
    free = room.memory_left(tmp_path)
    (tmp_path / "memory.stat").write_text("anon 1000\nfile 5000\n")
    (tmp_path / "memory.max").write_text("4000\n")
    assert room.memory_left(tmp_path) == 3000
    (tmp_path / "memory.max").write_text("max\n")
    assert abs(room.memory_left(tmp_path) - free) < free / 2


def test_sizes_for_people() -> None:
    assert [room.shown(n) for n in (5, 2048, 3 << 20, 5 << 29)] == ["5 bytes", "2.0 KiB", "3.0 MiB", "2.5 GiB"]
