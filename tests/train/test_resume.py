"""Promise: N + M steps equal N, save, leave, load, M: the same examples, and the same loss to the last bit on the CPU."""

import json
from typing import Any

import pytest
import torch

from dynotune.errors import TrainingError
from tests.tiny import tiny_model

MODES: dict[str, dict[str, Any]] = {
    "full": {},
    "lora with dropout": {"use_peft": True, "lora_r": 4, "lora_dropout": 0.3, "lora_target_modules": "all-linear"},
    "sgd": {"optim": "sgd"},
    "adafactor": {"optim": "adafactor"},
    "rmsprop, cosine": {"optim": "rmsprop", "lr_scheduler_type": "cosine", "warmup_steps": 2},
    "neftune": {"neftune_noise_alpha": 5.0},
}


class KilledError(Exception):
    """Ends a run in the middle of a step, as a kill would."""


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_run_that_was_cut_off_goes_on_as_if_nothing_had_happened(run_tiny: Any, tmp_path: Any, mode: str) -> None:
    from transformers import TrainerCallback

    class KillAtStep6(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 6:
                raise KilledError

    settings = {"max_steps": 9, "save_strategy": "steps", "save_steps": 4, **MODES[mode]}
    whole = run_tiny(output_dir=str(tmp_path / "whole"), **settings)
    with pytest.raises(KilledError):
        run_tiny(callbacks=[KillAtStep6()], **settings)
    resumed = run_tiny(resume_from_checkpoint=True, **settings)
    losses = {r["step"]: (r["loss"], r["grad_norm"], r["num_tokens"]) for r in whole.metrics}
    again = {r["step"]: (r["loss"], r["grad_norm"], r["num_tokens"]) for r in resumed.metrics}
    assert sorted(again) == [5, 6, 7, 8, 9]
    assert again == {step: losses[step] for step in again}
    for (name, a), (_, b) in zip(whole.model.named_parameters(), resumed.model.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in rows] == list(range(1, 10))  # no step twice
    assert (tmp_path / "run" / "metrics.repeated.jsonl").is_file()


def test_the_comparison_can_fail(run_tiny: Any, tmp_path: Any) -> None:
    """Negative control: without the optimizer's state the loss differs."""
    settings = {"max_steps": 9, "save_strategy": "steps", "save_steps": 4}
    whole = run_tiny(output_dir=str(tmp_path / "whole"), **settings)
    fresh = run_tiny(model=tiny_model(seed=1), output_dir=str(tmp_path / "other"), **settings)
    assert [r["loss"] for r in whole.metrics][4:] != [r["loss"] for r in fresh.metrics][4:]


def test_a_checkpoint_without_optimizer_state_says_how_to_go_on(run_tiny: Any) -> None:
    run_tiny(save_strategy="steps", save_steps=3, save_only_model=True)
    with pytest.raises(TrainingError, match=r"save_only_model.*model_name_or_path"):
        run_tiny(resume_from_checkpoint=True)


def test_nothing_to_resume_from_is_an_error(run_tiny: Any, tmp_path: Any) -> None:
    with pytest.raises(TrainingError, match="no complete checkpoint"):
        run_tiny(resume_from_checkpoint=True)
    with pytest.raises(TrainingError, match="not a checkpoint"):
        run_tiny(resume_from_checkpoint=str(tmp_path))


def test_a_half_written_checkpoint_is_not_taken(run_tiny: Any, tmp_path: Any) -> None:
    run_tiny(save_strategy="steps", save_steps=3)
    half = tmp_path / "run" / "checkpoints" / "step-99"
    half.mkdir()
    (half / "training.safetensors").write_bytes(b"torn")
    resumed = run_tiny(resume_from_checkpoint=True, max_steps=8, save_strategy="no")
    assert [r["step"] for r in resumed.metrics] == [7, 8]


def test_a_checkpoint_holds_no_pickle(run_tiny: Any, tmp_path: Any) -> None:
    run_tiny(save_strategy="steps", save_steps=3)
    names = [p.name for p in (tmp_path / "run").rglob("*") if p.is_file()]
    assert names
    assert not [n for n in names if n.endswith((".bin", ".pt", ".pth", ".pkl", ".pickle"))]


@pytest.mark.parametrize(
    "change",
    [
        {"per_device_train_batch_size": 3},
        {"data_seed": 7},
        {"max_length": 9, "on_bad_row": "skip"},
        {"train_sampling_strategy": "sequential"},
    ],
)
def test_resuming_under_another_plan_is_refused_with_the_difference(run_tiny: Any, change: dict[str, Any]) -> None:
    run_tiny(save_strategy="steps", save_steps=3)
    with pytest.raises(TrainingError, match=r"another plan \(.*then.*now"):
        run_tiny(resume_from_checkpoint=True, max_steps=9, **change)
