"""Promise: N + M steps equal N, save, leave, load, M: the same examples, and the same loss to the last bit on the CPU."""

import io
import json
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

from dynotune.errors import ConfigError, TrainingError
from tests.tiny import chats, tiny_model
from tests.train.checkpoints.sealing import reseal

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


@pytest.mark.parametrize("longer", [6, 8])
def test_a_run_that_had_ended_writes_its_last_row_once(run_tiny: Any, tmp_path: Any, capsys: Any, longer: int) -> None:
    """The last checkpoint stands before the last row, and holds its steps: going on writes that row anew, not again."""
    settings = {"max_steps": 6, "save_strategy": "steps", "save_steps": 6, "logging_steps": 4}
    run_tiny(**settings)
    metrics = tmp_path / "run" / "metrics.jsonl"
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()] == [4, 6]
    run_tiny(resume_from_checkpoint=True, console=Console(), **settings | {"max_steps": longer})
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()] == [4, longer]
    said = "all 6 steps had been taken: nothing is left to train" in " ".join(capsys.readouterr().out.split())
    assert said == (longer == 6)


def test_the_comparison_can_fail(run_tiny: Any, tmp_path: Any) -> None:
    """Negative control: with an optimizer that has forgotten its moments, the loss differs."""
    settings = {"max_steps": 9, "save_strategy": "steps", "save_steps": 4}
    whole = run_tiny(output_dir=str(tmp_path / "whole"), **settings)
    run_tiny(**settings)
    saved = tmp_path / "run" / "checkpoints" / "step-4" / "training.safetensors"
    tensors = load_file(saved)
    save_file({k: v.zero_() if k.endswith("exp_avg_sq") else v for k, v in tensors.items()}, saved)
    reseal(saved.parent)
    resumed = run_tiny(resume_from_checkpoint=str(saved.parent), **settings)
    assert resumed.metrics[0]["loss"] == whole.metrics[4]["loss"]  # the weights are right
    assert resumed.metrics[1]["loss"] != whole.metrics[5]["loss"]


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
        {"data_seed": 7},
        {"max_length": 9, "on_bad_row": "skip"},
        {"train_sampling_strategy": "sequential"},
    ],
)
def test_resuming_under_another_plan_is_refused_with_the_difference(run_tiny: Any, change: dict[str, Any]) -> None:
    run_tiny(save_strategy="steps", save_steps=3)
    with pytest.raises(TrainingError, match=r"another plan \(.*then.*now"):
        run_tiny(resume_from_checkpoint=True, max_steps=9, **change)


@pytest.mark.parametrize("change", [{"optim": "sgd"}, {"label_smoothing_factor": 0.1}, {"optim_args": "amsgrad=True"}])
def test_resuming_with_another_mathematics_is_refused_with_the_difference(
    run_tiny: Any, change: dict[str, Any]
) -> None:
    run_tiny(save_strategy="steps", save_steps=3)
    with pytest.raises(TrainingError, match=rf"another configuration: {next(iter(change))}: .* then, .* now \("):
        run_tiny(resume_from_checkpoint=True, max_steps=9, **change)


def test_resuming_with_other_rows_of_the_same_sizes_is_refused(run_tiny: Any) -> None:
    rows = chats(12)
    run_tiny(save_strategy="steps", save_steps=3, rows=rows)
    with pytest.raises(TrainingError, match=r"another plan \(data: "):
        run_tiny(resume_from_checkpoint=True, max_steps=9, rows=rows[::-1])


def test_a_run_made_longer_goes_on_along_the_longer_schedule(run_tiny: Any) -> None:
    run_tiny(save_strategy="steps", save_steps=6)
    longer = run_tiny(resume_from_checkpoint=True, max_steps=12, save_strategy="no")
    rates = [row["learning_rate"] for row in longer.metrics if "loss" in row]
    assert rates == pytest.approx([1e-2 * (12 - step) / 12 for step in range(6, 12)])
    with pytest.raises(TrainingError, match="6 steps and this run asks for 4"):
        run_tiny(resume_from_checkpoint=True, max_steps=4, save_strategy="no")


@pytest.mark.parametrize("tied", [False, True])
def test_lora_with_new_tokens_resumes_and_takes_its_best(run_tiny: Any, tmp_path: Any, tied: bool) -> None:
    def go(**settings: Any) -> Any:
        return run_tiny(
            model=tiny_model(vocab_size=340, tie_word_embeddings=tied),
            rows=[{"text": f"a <new{i % 20}> b"} for i in range(12)],
            use_peft=True, lora_target_modules=["q_proj"], added_tokens=[f"<new{i}>" for i in range(20)],
            eval_dataset=[{"text": "a <new3> b"}], eval_strategy="steps", eval_steps=3, max_steps=9, **settings,
        )  # fmt: skip

    whole = go(output_dir=str(tmp_path / "whole"))
    go(save_strategy="steps", save_steps=3, load_best_model_at_end=True)
    resumed = go(resume_from_checkpoint=str(tmp_path / "run" / "checkpoints" / "step-3"))
    losses = {row["step"]: row["loss"] for row in whole.metrics if "loss" in row}
    assert {row["step"]: row["loss"] for row in resumed.metrics if "loss" in row} == {
        s: losses[s] for s in range(4, 10)
    }


def test_another_adapter_is_refused_by_the_weights_that_differ(run_tiny: Any, tmp_path: Any) -> None:
    from peft import LoraConfig, get_peft_model

    def wrapped(r: int) -> Any:
        return get_peft_model(tiny_model(), LoraConfig(r=r, target_modules=["q_proj"], task_type="CAUSAL_LM"))

    run_tiny(model=wrapped(4), save_strategy="steps", save_steps=3)
    with pytest.raises(TrainingError, match=r"another adapter.*lora_A"):
        run_tiny(model=wrapped(8), resume_from_checkpoint=True, max_steps=9)


def test_a_checkpoint_of_another_run_is_not_mixed_into_this_folder(run_tiny: Any, tmp_path: Any) -> None:
    run_tiny(save_strategy="steps", save_steps=3, output_dir=str(tmp_path / "other"))
    run_tiny(save_strategy="steps", save_steps=3)
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    with pytest.raises(ConfigError, match="belongs to another run"):
        run_tiny(resume_from_checkpoint=str(tmp_path / "other" / "checkpoints" / "step-3"), max_steps=9)
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == before
    # into an empty folder it may go on
    fork = run_tiny(
        resume_from_checkpoint=str(tmp_path / "other" / "checkpoints" / "step-3"), output_dir=str(tmp_path / "fork")
    )
    assert [row["step"] for row in fork.metrics] == [4, 5, 6]


def test_checkpoints_of_the_branch_that_was_left_are_set_aside(run_tiny: Any, tmp_path: Any) -> None:
    run_tiny(save_strategy="steps", save_steps=2)
    checkpoints = tmp_path / "run" / "checkpoints"
    run_tiny(resume_from_checkpoint=str(checkpoints / "step-2"), save_strategy="no", max_steps=3)
    assert {p.name for p in checkpoints.iterdir()} >= {"step-2", "abandoned-step-4", "abandoned-step-6"}
    assert not (checkpoints / "step-6").exists()


def test_a_line_that_a_crash_tore_does_not_stop_a_resume(run_tiny: Any, tmp_path: Any) -> None:
    run_tiny(save_strategy="steps", save_steps=3)
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "lo')
    run_tiny(resume_from_checkpoint=True, max_steps=8, save_strategy="no")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 9))


def test_optimizer_states_that_are_missing_are_found(run_tiny: Any, tmp_path: Any) -> None:
    run_tiny(save_strategy="steps", save_steps=3)
    file = tmp_path / "run" / "checkpoints" / "step-6" / "training.safetensors"
    tensors = load_file(file)
    save_file({k: v for k, v in tensors.items() if "layers.1" not in k}, file)
    reseal(file.parent)
    with pytest.raises(TrainingError, match="does not hold what a resume needs"):
        run_tiny(resume_from_checkpoint=True, max_steps=8)


def test_model_weights_that_are_missing_are_found(run_tiny: Any, tmp_path: Any) -> None:
    run_tiny(save_strategy="steps", save_steps=3)
    file = tmp_path / "run" / "checkpoints" / "step-6" / "model" / "model.safetensors"
    tensors = load_file(file)
    save_file({k: v for k, v in tensors.items() if "q_proj" not in k}, file, metadata={"format": "pt"})
    reseal(file.parent.parent)
    with pytest.raises(TrainingError, match="lacks 2 weights"):
        run_tiny(resume_from_checkpoint=True, max_steps=8)


@pytest.mark.parametrize("damage", ["state.json", "training.safetensors", "random.json"])
def test_a_checkpoint_that_was_edited_with_its_manifest_is_an_error_that_names_the_file(
    run_tiny: Any, tmp_path: Any, damage: str
) -> None:
    run_tiny(save_strategy="steps", save_steps=3)
    file = tmp_path / "run" / "checkpoints" / "step-6" / damage
    file.write_bytes(file.read_bytes()[:50])
    reseal(file.parent)
    with pytest.raises(TrainingError, match=damage):
        run_tiny(resume_from_checkpoint=True, max_steps=8)


def test_a_best_checkpoint_that_is_not_in_this_folder_is_forgotten_at_the_start(run_tiny: Any, tmp_path: Any) -> None:
    """The run would end with an error in place of its model otherwise: the best one stayed with the other run."""
    settings: dict[str, Any] = {
        "save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True,
        "greater_is_better": True, "eval_dataset": chats(3, seed=5),
    }  # fmt: skip
    whole = run_tiny(**settings)
    assert whole.summary["best_step"] == 2  # learning lowers the loss, and here the largest is best
    said = io.StringIO()
    fork = run_tiny(
        resume_from_checkpoint=str(tmp_path / "run" / "checkpoints" / "step-4"),
        output_dir=str(tmp_path / "fork"),
        console=Console(file=said, width=1000),
        **settings,
    )
    assert fork.summary["best_step"] == 6
    assert "not restored: the best evaluation so far (step 2), since" in said.getvalue()
    again = run_tiny(resume_from_checkpoint=str(tmp_path / "run" / "checkpoints" / "step-4"), **settings)
    assert again.summary["best_step"] == 2  # where it is there, it is taken


def test_a_run_without_patience_takes_no_further_step_when_it_is_resumed(run_tiny: Any) -> None:
    settings: dict[str, Any] = {
        "save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True,
        "greater_is_better": True, "early_stopping_patience": 1, "max_steps": 20, "eval_dataset": chats(3, seed=5),
    }  # fmt: skip
    assert run_tiny(**settings).steps == 4
    resumed = run_tiny(resume_from_checkpoint=True, **settings)
    assert (resumed.steps, resumed.summary["best_step"], resumed.metrics) == (4, 2, [])
    assert run_tiny(resume_from_checkpoint=True, **{**settings, "early_stopping_patience": 2}).steps == 6


def test_parts_of_a_model_in_a_wider_type_are_restored_to_the_last_bit(run_tiny: Any, tmp_path: Any) -> None:
    def mixed() -> Any:
        model = tiny_model(tie_word_embeddings=False).to(torch.bfloat16)
        model.model.norm.float()
        model.lm_head.float()
        return model

    settings = {"max_steps": 8, "save_strategy": "steps", "save_steps": 4}
    whole = run_tiny(model=mixed(), **settings)
    checkpoint = tmp_path / "run" / "checkpoints" / "step-4"
    resumed = run_tiny(model=mixed(), resume_from_checkpoint=str(checkpoint), **settings)
    for (name, a), (_, b) in zip(whole.model.named_parameters(), resumed.model.named_parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("edited", [False, True])
def test_what_somebody_changed_is_said_and_what_the_resume_writes_anew_is_not(
    run_tiny: Any, tmp_path: Any, edited: bool
) -> None:
    run_tiny(max_steps=4, save_strategy="steps", save_steps=2)
    if edited:
        with (tmp_path / "run" / "plan.json").open("a") as file:
            file.write(" ")
    said = io.StringIO()
    run_tiny(max_steps=6, save_strategy="steps", save_steps=2, resume_from_checkpoint=True, console=Console(file=said))
    assert ("as it was written" in said.getvalue()) == edited
