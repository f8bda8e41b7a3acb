"""Promise: a checkpoint with one changed byte is never resumed from; the newest whole one is taken, and that is said."""

import random
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune.config.keys.saving import SavingConfig
from dynotune.errors import TrainingError
from dynotune.manifest import MANIFEST, below
from dynotune.train.checkpoints.checkpoints import Checkpoints
from dynotune.train.checkpoints.contents import damage_of
from dynotune.train.folder.verify import verify

SAVES = {"save_strategy": "steps", "save_steps": 2}


def flip(path: Path, chance: random.Random) -> None:
    """Change one byte of a file at a random place."""
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
    path.write_bytes(data)


@pytest.mark.parametrize("adapter", [False, True])
def test_a_flipped_byte_in_any_file_is_found_and_the_file_named(run_tiny: Any, tmp_path: Path, adapter: bool) -> None:
    chance = random.Random(1)
    run_tiny(max_steps=2, **SAVES, use_peft=adapter, lora_target_modules=["q_proj"] if adapter else None)
    checkpoint = tmp_path / "run" / "checkpoints" / "step-2"
    assert damage_of(checkpoint) == []
    files = [*below(checkpoint), checkpoint / MANIFEST]
    names = {path.relative_to(checkpoint).as_posix() for path in files}
    part = "adapter/adapter_model.safetensors" if adapter else "model/model.safetensors"
    assert names >= {part, "training.safetensors", "state.json", "random.json", MANIFEST}
    for path in files:
        whole = path.read_bytes()
        for _ in range(5):
            flip(path, chance)
            assert any(path.name in sentence for sentence in damage_of(checkpoint)), path
            path.write_bytes(whole)
    assert damage_of(checkpoint) == []


def test_the_newest_whole_one_is_taken_and_said(run_tiny: Any, tmp_path: Path) -> None:
    run_tiny(**SAVES)
    folder = tmp_path / "run" / "checkpoints"
    flip(folder / "step-6" / "training.safetensors", random.Random(2))
    said = Console(record=True, width=500, file=StringIO())
    resumed = run_tiny(resume_from_checkpoint=True, console=said, **SAVES)
    text = said.export_text()
    assert "step-6 is not taken: training.safetensors differs from its checksum" in text
    assert f"resumed from {folder / 'step-4'}" in text
    assert [row["step"] for row in resumed.metrics] == [5, 6]
    assert (folder / "damaged-step-6").is_dir()
    assert damage_of(folder / "step-6") == []
    found = verify(tmp_path / "run")
    assert found.whole
    assert "damaged-step-6, which a resume set aside" in "".join(found.notes)


def test_a_damaged_one_that_was_named_is_refused(run_tiny: Any, tmp_path: Path) -> None:
    run_tiny(**SAVES)
    folder = tmp_path / "run" / "checkpoints"
    flip(folder / "step-4" / "random.json", random.Random(3))
    with pytest.raises(TrainingError, match=r"step-4 is damaged: random.json differs"):
        run_tiny(resume_from_checkpoint=str(folder / "step-4"), **SAVES)
    for step in (2, 6):
        flip(folder / f"step-{step}" / MANIFEST, random.Random(step))
    with pytest.raises(TrainingError, match=r"no complete checkpoint \(.*step-6 .*step-4 .*step-2 "):
        run_tiny(resume_from_checkpoint=True, **SAVES)


def test_one_of_the_first_format_is_refused_with_the_reason(run_tiny: Any, tmp_path: Path) -> None:
    run_tiny(max_steps=2, **SAVES)
    (tmp_path / "run" / "checkpoints" / "step-2" / MANIFEST).unlink()
    with pytest.raises(TrainingError, match="earlier version wrote it without checksums"):
        run_tiny(resume_from_checkpoint=True, max_steps=4, **SAVES)


def test_only_whole_ones_count_towards_the_limit(run_tiny: Any, tmp_path: Path) -> None:
    run_tiny(max_steps=4, **SAVES)
    folder = tmp_path / "run" / "checkpoints"
    weights = folder / "step-4" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    run_tiny(resume_from_checkpoint=str(folder / "step-2"), max_steps=3, save_strategy="no")
    assert (folder / "damaged-step-4").is_dir()
    (folder / "damaged-step-4").rename(folder / "step-4")
    keeper = Checkpoints(folder, SavingConfig(save_total_limit=2))
    assert [path.name for path in keeper.all()] == ["step-2"]
    keeper._prune(keep=set())
    assert (folder / "step-2").is_dir()


def test_a_best_model_that_is_damaged_is_not_taken(run_tiny: Any, tmp_path: Path) -> None:
    from transformers import TrainerCallback

    class Damage(TrainerCallback):
        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            best = tmp_path / "run" / "checkpoints" / f"step-{state.best_global_step}"
            flip(best / "model" / "model.safetensors", random.Random(4))

    evaluates = {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "eval_dataset": [{"text": "a b c d e"}],
        "greater_is_better": True,  # of a loss: the first one stays the best
        "metric_for_best_model": "loss",
    }
    with pytest.raises(TrainingError, match=r"damaged: model/model.safetensors differs.*It was the best one"):
        run_tiny(load_best_model_at_end=True, callbacks=[Damage()], **evaluates, **SAVES)
