"""Promise: arms of full DPO that stand in one process compare with the weights as they were opened, not with those that an
arm before them has trained; and nothing trained goes into the reference cache."""

import json
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from dynotune.bench.workers import stage as stage_module
from dynotune.bench.workers.stage import Stage
from dynotune.config.dpo import DPOConfig
from dynotune.errors import TrainingError
from dynotune.parallel.ranks import Ranks
from dynotune.train.quiet import quiet
from tests.tiny import completions, tiny_model, tiny_tokenizer


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DPOConfig:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    tiny_model().save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    rows = completions(25)
    pairs = [
        {"prompt": one["prompt"], "chosen": one["completion"], "rejected": other["completion"]}
        for one, other in pairwise(rows)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return DPOConfig(
        model_name_or_path=str(tmp_path / "model"), dataset_name=str(tmp_path / "rows.jsonl"), use_cpu=True,
        per_device_train_batch_size=4, report_to="none", max_length=100, learning_rate=1e-2,
    )  # fmt: skip


@contextmanager
def stage(config: DPOConfig, folder: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage.opening(quiet(config, folder), Ranks(), torch.device("cpu"), Console(quiet=True), stack)


def stand_and_train(on: Stage, name: str, config: DPOConfig, folder: Path) -> list[str]:
    """What was said before the first step."""
    said = on.stand(name, quiet(config, folder))["said"]
    on.take(1, 2, discarded=0)
    return [str(line) for line in said]


def reference(on: Stage) -> np.ndarray:
    items: Any = on.it.material.items
    return np.array(items.reference_PC)


def test_the_second_arm_has_the_reference_of_the_first(config: DPOConfig, tmp_path: Path) -> None:
    """Control: an arm that is not told that something trained before it stops, since its policy is not its reference."""
    with stage(config, tmp_path / "run") as on:
        first = stand_and_train(on, "a", config, tmp_path / "run")
        known = reference(on)
        second = stand_and_train(on, "b", config, tmp_path / "run")
        assert np.array_equal(reference(on), known)
        assert not any("before anything trained here" in line for line in first)
        assert any("before anything trained here" in line for line in second)
        assert any("have been trained by what stood here before" in line for line in second)
        on.it.trained = False
        with pytest.raises(TrainingError, match="Before the first update"):
            on.stand("c", quiet(config, tmp_path / "run"))


def test_under_an_adapter_a_bench_computes_the_reference_of_the_pairs_that_it_meets(
    config: DPOConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 12,800 pairs, one sequence at a time, it took longer than a bench. A second arm, behind the training of the first,
    goes on with the same values. Control: what a run of all steps computes is the same, to rounding."""
    monkeypatch.setattr(stage_module, "FIRST_STEPS", 1)
    lora = config.replace(use_peft=True, lora_r=4, lora_target_modules=["q_proj", "v_proj"])
    with stage(lora, tmp_path / "run") as on:
        stand_and_train(on, "a", lora, tmp_path / "run")
        some = reference(on)
        assert np.isfinite(some).all(1).sum() == 8, "two steps of four pairs, of 24"
        on.stand("b", quiet(lora, tmp_path / "run"))
        assert np.array_equal(reference(on), some, equal_nan=True)
        assert np.isfinite(on.take(4, 2)["loss"]), "of steps 3 to 5, the one that does not count among them"
        more = reference(on)
        known = np.isfinite(more).all(1)
        assert known.sum() == 20
        assert np.array_equal(more[np.isfinite(some)], some[np.isfinite(some)])
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "another"))
    monkeypatch.setattr(stage_module, "FIRST_STEPS", 6)
    with stage(lora, tmp_path / "next") as on:
        stand_and_train(on, "a", lora, tmp_path / "next")
        assert np.abs(more[known] / reference(on)[known] - 1).max() < 1e-5


@pytest.mark.parametrize("lora", [True, False])
def test_what_an_arm_holds_goes_with_it(config: DPOConfig, tmp_path: Path, lora: bool) -> None:
    """Its optimizer's states above all: two arms' at once may not fit. Control: while it stands they are there."""
    config = config.replace(use_peft=lora)
    with stage(config, tmp_path / "run") as on:
        stand_and_train(on, "a", config, tmp_path / "run")
        optimizer, plan = weakref.ref(on.run.trainee.optimizer), weakref.ref(on.run.plan)
        assert optimizer() is not None
        on.stand("b", quiet(config, tmp_path / "run"))
        assert optimizer() is None
        assert plan() is None


def test_what_an_arm_trained_is_no_reference_of_a_run_to_come(config: DPOConfig, tmp_path: Path) -> None:
    """A fresh run of the same files, with the same cache, agrees with its reference in its first step."""
    with stage(config, tmp_path / "run") as on:
        stand_and_train(on, "a", config, tmp_path / "run")
        stand_and_train(on, "b", config, tmp_path / "run")
        known = reference(on)
    with stage(config, tmp_path / "next") as on:
        said = stand_and_train(on, "a", config, tmp_path / "next")
        assert np.array_equal(reference(on), known)
    assert not any("have been trained by what stood here before" in line for line in said)
