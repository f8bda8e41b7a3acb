"""Promise: what differs on resume is named, and for every key it is decided what a difference does."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune import DPOConfig, SFTConfig
from dynotune.config.keys.preference import PREFERENCE_LOSSES
from dynotune.config.load import load_config
from dynotune.errors import ConfigError, TrainingError
from dynotune.objectives.preference.losses import LOSSES
from dynotune.objectives.preference.pairs import Need
from dynotune.train.checkpoints.decisions import DECISIONS, QUIET, Matter
from dynotune.train.checkpoints.differences import differences, said_of, with_batch_of

SAVES = {"save_strategy": "steps", "save_steps": 3}


def test_every_key_has_a_decision_and_no_decision_lacks_its_key() -> None:
    assert set(DECISIONS) == {*SFTConfig.model_fields, *DPOConfig.model_fields}
    assert set(DECISIONS) >= QUIET
    assert all(one.reason for one in DECISIONS.values())


def test_a_difference_in_any_key_is_named_with_its_decision() -> None:
    now = {**DPOConfig().public_dict(), **SFTConfig().public_dict()}
    for key, decision in DECISIONS.items():
        found = differences({**now, key: "another"}, now)
        if key in QUIET:
            assert not found
            continue
        assert [(one.key, one.matter) for one in found] == [(key, decision.matter)]
        assert decision.matter is Matter.ERROR or key in " ".join(said_of(found))


@pytest.mark.parametrize("loss", PREFERENCE_LOSSES)
def test_another_batch_is_another_objective_where_a_loss_is_defined_on_it(loss: str) -> None:
    needs = LOSSES[loss].needs
    by_batch = bool(needs & {Need.WHOLE_GROUPS, Need.TOKEN_SHARES})
    then = DPOConfig(loss_type=["sigmoid", loss], label_smoothing=0.1, per_device_train_batch_size=8)
    [found] = differences(then.public_dict(), then.replace(per_device_train_batch_size=4).public_dict())
    assert found.matter is (Matter.ERROR if by_batch else Matter.NOTHING)
    # On other GPUs a step keeps its pairs, and its batches theirs where they count.
    kept, _ = with_batch_of(then, Path("step-3"), 32, given=False, world=2)
    assert kept.examples_on(2) == 32
    assert kept.per_device_train_batch_size * kept.gradient_accumulation_steps == 32
    assert not by_batch or kept.per_device_train_batch_size == 8


def test_a_key_of_another_version_is_said() -> None:
    assert "note: old_key: 3 then, None now: this version does not have it" in said_of(differences({"old_key": 3}, {}))


@pytest.fixture
def said() -> Console:
    return Console(record=True, file=StringIO(), width=400)


def resumed(run_tiny: Any, said: Console, **settings: Any) -> tuple[Any, str]:
    result = run_tiny(resume_from_checkpoint=True, console=said, **{"max_steps": 9, **SAVES, **settings})
    return result, said.export_text()


def test_what_was_restored_is_said(run_tiny: Any, said: Console) -> None:
    run_tiny(**SAVES)
    _, text = resumed(run_tiny, said)
    assert "step 6 of 9" in text
    for part in (
        "21 weights",
        "AdamW states of 21 weights",
        "schedule",
        "random states of Python, numpy, PyTorch",
        "(step 6, ",
    ):
        assert part in text.split("restored: ")[1].splitlines()[0]
    assert "note: max_steps: 6 then, 9 now: the run gets another length" in text
    assert "not restored" not in text


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_another_learning_rate_is_said_and_really_taken(run_tiny: Any, said: Console, schedule: str) -> None:
    run_tiny(max_steps=9, lr_scheduler_type="linear", **SAVES)
    result, text = resumed(run_tiny, said, learning_rate=1e-3, lr_scheduler_type=schedule, warmup_steps=0)
    assert "note: learning_rate: 0.01 then, 0.001 now" in text
    straight = run_tiny(overwrite_output_dir=True, max_steps=9, learning_rate=1e-3, lr_scheduler_type=schedule)
    rates = {row["step"]: row["learning_rate"] for row in straight.metrics}
    assert all(row["learning_rate"] == rates[row["step"]] for row in result.metrics)


def test_other_hyper_parameters_of_the_optimizer_are_really_taken(
    run_tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tiny(**SAVES)
    groups: list[Any] = []
    from transformers import TrainerCallback

    class Look(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            groups[:] = [{k: g[k] for k in ("weight_decay", "betas", "eps")} for g in more["optimizer"].param_groups]

    run_tiny(resume_from_checkpoint=True, max_steps=7, callbacks=[Look()], weight_decay=0.3, adam_beta1=0.7)
    assert [g["weight_decay"] for g in groups] == [0.3, 0.0]
    assert [g["betas"] for g in groups] == [(0.7, 0.999)] * 2
    # Negative control: what was not changed is the checkpoint's.
    run_tiny(resume_from_checkpoint=True, max_steps=8, callbacks=[Look()], save_strategy="no")
    assert [g["weight_decay"] for g in groups] == [0.0, 0.0]


def test_an_optimizer_under_its_other_name_goes_on(run_tiny: Any, said: Console) -> None:
    constant = {"lr_scheduler_type": "constant", **SAVES}
    straight = run_tiny(max_steps=9, **constant)
    run_tiny(overwrite_output_dir=True, **constant)
    result, text = resumed(run_tiny, said, optim="adamw_torch", **constant)
    assert [row["loss"] for row in result.metrics] == [row["loss"] for row in straight.metrics[6:]]
    assert "without effect on what is learned: " in text
    assert "optim" in text.split("without effect on what is learned: ")[1].splitlines()[0]
    # Negative control: another one's states are others.
    with pytest.raises(TrainingError, match="optim: adamw_torch then, sgd now"):
        run_tiny(resume_from_checkpoint=True, max_steps=12, optim="sgd", **constant)


@pytest.mark.parametrize(("then", "now"), [("adamw_8bit", "adamw_bnb_8bit"), ("adamw_torch_fused", "adamw_torch")])
def test_names_of_one_optimizer_are_no_matter(then: str, now: str) -> None:
    assert [one.matter for one in differences({"optim": then}, {"optim": now})] == [Matter.NOTHING]
    assert [one.matter for one in differences({"optim": then}, {"optim": "sgd"})] == [Matter.ERROR]


def test_a_schedule_that_watches_evaluations_follows_only_itself(run_tiny: Any) -> None:
    run_tiny(**SAVES)
    with pytest.raises(TrainingError, match="reduce_lr_on_plateau"):
        run_tiny(
            resume_from_checkpoint=True, max_steps=9, lr_scheduler_type="reduce_lr_on_plateau",
            eval_strategy="steps", eval_dataset=[{"text": "a b c"}],
        )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{"per_device_train_batch_size": 1}, {"gradient_accumulation_steps": 3}, {"per_device_train_batch_size": 3}],
)
def test_a_step_keeps_the_examples_that_it_had(run_tiny: Any, tmp_path: Path, said: Console, change: Any) -> None:
    whole = run_tiny(max_steps=9, **SAVES)
    start = str(tmp_path / "run" / "checkpoints" / "step-3")
    result = run_tiny(resume_from_checkpoint=start, console=said, **{"max_steps": 9, **SAVES, **change})
    assert "a step keeps the 2 examples" in said.export_text()
    assert [row["loss"] for row in result.metrics] == [row["loss"] for row in whole.metrics[3:]]
    written = load_config(tmp_path / "run" / "config.yaml")
    assert written.examples_on(1) == 2


def test_a_global_batch_size_that_contradicts_the_checkpoint_is_an_error(run_tiny: Any) -> None:
    run_tiny(**SAVES)
    with pytest.raises(ConfigError, match=r"global_batch_size: 4.*step-6.*2 examples"):
        run_tiny(resume_from_checkpoint=True, max_steps=9, global_batch_size=4)
    assert run_tiny(resume_from_checkpoint=True, max_steps=9, global_batch_size=2).steps == 9


def test_the_best_under_another_metric_is_not_taken_over(run_tiny: Any, said: Console) -> None:
    evaluates = {"eval_strategy": "steps", "eval_steps": 3, "eval_dataset": [{"text": "a b c d e"}]}
    run_tiny(load_best_model_at_end=True, **evaluates, **SAVES)
    result, text = resumed(
        run_tiny,
        said,
        load_best_model_at_end=True,
        metric_for_best_model="entropy",
        greater_is_better=False,
        **evaluates,
    )
    assert "not restored: the best evaluation so far" in text
    assert result.summary["best_step"] == 9


def test_what_steps_contain_is_named_with_the_keys_behind_it(run_tiny: Any) -> None:
    run_tiny(**SAVES)
    with pytest.raises(TrainingError, match=r"another plan .*real_tokens_.*Keys that differ: max_length: 1024 then"):
        run_tiny(resume_from_checkpoint=True, max_steps=9, max_length=9, on_bad_row="error")


def test_a_schedule_that_watches_evaluations_keeps_what_it_has_seen_and_takes_what_it_is_told(run_tiny: Any) -> None:
    from transformers import TrainerCallback

    schedules: list[Any] = []

    class Look(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            schedules.append((more["lr_scheduler"].best, more["lr_scheduler"].patience))

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            schedules.append((more["lr_scheduler"].best, more["lr_scheduler"].patience))

    settings = {
        "lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps", "eval_steps": 3,
        "eval_dataset": [{"text": "a b c d e"}], "callbacks": [Look()], **SAVES,
    }  # fmt: skip
    run_tiny(**settings)
    run_tiny(resume_from_checkpoint=True, lr_scheduler_kwargs={"patience": 2}, **{**settings, "max_steps": 9})
    _, end, again, _ = schedules
    assert again[0] == end[0]
    assert (end[1], again[1]) == (10, 2)
