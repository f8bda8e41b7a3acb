"""Promise: transformers' callbacks see the events that TRL gives them, in its order, and their requests are carried out."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import EarlyStoppingCallback, TrainerCallback

from dynotune.errors import ConfigError, TrainingError
from tests.tiny import chats, tiny_model, tiny_tokenizer

HOOKS = [name for name in vars(TrainerCallback) if name.startswith("on_")]


class Recorder(TrainerCallback):
    """Every event as `(name, global_step, epoch)`, but TRL's last log of the whole run's figures, which we do not have."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, float]] = []

    def names(self, *of: str) -> list[tuple[str, int]]:
        return [(name, step) for name, step, _ in self.seen if name in of]


def _recording(name: str) -> Any:
    def hook(self: Recorder, args: Any, state: Any, control: Any, **more: Any) -> None:
        if "train_runtime" not in (more.get("logs") or {}):
            self.seen.append((name.removeprefix("on_"), state.global_step, round(state.epoch or 0, 4)))

    return hook


for _name in HOOKS:
    setattr(Recorder, _name, _recording(_name))


class Asks(TrainerCallback):
    """Sets the named flags when an event comes at one of the given steps."""

    def __init__(self, event: str, **flags: tuple[int, ...]) -> None:
        self.flags = flags
        setattr(self, f"on_{event}", self.hook)

    def hook(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        for flag, steps in self.flags.items():
            if state.global_step in steps:
                setattr(control, f"should_{flag}", True)


BATCH: dict[str, Any] = {
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 2,
    "max_steps": 6,
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
}
EVENTFUL: dict[str, tuple[dict[str, Any], Any]] = {
    "steps": ({"logging_steps": 2, "eval_strategy": "steps", "eval_steps": 4, "save_steps": 3}, None),
    "end": ({"logging_steps": 1, "eval_strategy": "steps", "eval_steps": 4, "save_steps": 4}, None),
    "epochs": ({"logging_strategy": "epoch", "eval_strategy": "epoch", "save_strategy": "epoch"}, None),
    "start": ({"logging_steps": 3, "logging_first_step": True, "eval_on_start": True, "save_strategy": "no"}, None),
    "ask at step end": (
        {"logging_steps": 6, "save_strategy": "no"},
        lambda: Asks("step_end", log=(2, 3), evaluate=(3,), save=(1, 3)),
    ),
    "ask at evaluation": (
        {"logging_steps": 1, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "no"},
        lambda: Asks("evaluate", save=(2, 6)),
    ),
    "ask at epoch end": ({"logging_steps": 3, "save_strategy": "no"}, lambda: Asks("epoch_end", save=(4,), log=(4,))),
    "stop": ({"logging_steps": 1, "save_strategy": "no"}, lambda: Asks("step_end", training_stop=(3,))),
    "best": (
        {
            "logging_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "best",
            "metric_for_best_model": "eval_loss",
        },
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EVENTFUL)
@pytest.mark.parametrize("execution", ["on", "off"])
def test_trl_and_we_give_the_same_events(case: str, execution: str, run_tiny: Any, tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import SFTConfig as TRLConfig  # type: ignore[attr-defined]
    from trl import SFTTrainer  # type: ignore[attr-defined]

    settings, asks = EVENTFUL[case]
    rows, held_out = chats(8), chats(3, seed=5)
    theirs, ours = Recorder(), Recorder()
    SFTTrainer(
        model=tiny_model(),
        args=TRLConfig(
            output_dir=str(tmp_path / "trl"), disable_tqdm=True, gradient_checkpointing=False,
            per_device_eval_batch_size=1, **BATCH, **settings,
        ),
        train_dataset=Dataset.from_list(rows), eval_dataset=Dataset.from_list(held_out),
        processing_class=tiny_tokenizer(), callbacks=[theirs, *([asks()] if asks else [])],
    ).train()  # fmt: skip
    run_tiny(
        rows=rows,
        eval_dataset=held_out,
        callbacks=[ours, *([asks()] if asks else [])],
        **{"save_strategy": "steps", **BATCH, **settings},
        packed_execution=execution,
    )
    # These two come once a forward pass, of which packed execution makes fewer.
    passes = {"substep_end", "prediction_step"} if execution == "on" else set()
    assert [e for e in ours.seen if e[0] not in passes] == [e for e in theirs.seen if e[0] not in passes]
    assert {"pre_optimizer_step", "optimizer_step", "epoch_begin", "epoch_end"} <= {e[0] for e in ours.seen}
    assert ("substep_end" in {e[0] for e in ours.seen}) == (execution == "off")


def test_the_recorder_tells_two_runs_apart(run_tiny: Any) -> None:
    """Negative control of the comparison with TRL."""
    a, b = Recorder(), Recorder()
    run_tiny(callbacks=[a])
    run_tiny(callbacks=[b], logging_steps=2, overwrite_output_dir=True)
    assert a.seen != b.seen


class Looks(TrainerCallback):
    """What callbacks are handed."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        assert more["model"].training
        assert more["processing_class"].chat_template
        assert args.learning_rate == 1e-2
        assert (state.max_steps, state.logging_steps, state.num_train_epochs) == (6, 1, 1)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        self.before = {n: p.clone() for n, p in model.named_parameters()}
        assert all(p.grad is not None for p in model.parameters())

    def on_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        assert any(not p.equal(self.before[n]) for n, p in model.named_parameters())
        assert any(p.grad is not None for p in model.parameters())
        self.ran = True


def test_callbacks_are_handed_what_transformers_hands_them(run_tiny: Any) -> None:
    looks = Looks()
    run_tiny(callbacks=[looks])
    assert looks.ran


class CallsTheModel(TrainerCallback):
    """Runs the model at every event, as someone who measures or samples does, and notes at which that went well."""

    def __init__(self) -> None:
        self.answered: set[str] = set()


def _calling(name: str) -> Any:
    def hook(self: CallsTheModel, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        with torch.no_grad():
            assert model(torch.arange(5, 25)[None]).logits.isfinite().all()
        self.answered.add(name.removeprefix("on_"))

    return hook


for _name in HOOKS:
    setattr(CallsTheModel, _name, _calling(_name))


@pytest.mark.parametrize("adapter", [False, True], ids=["full", "lora"])
def test_a_callback_may_call_the_model_at_any_event_of_a_packed_run(adapter: bool, run_tiny: Any) -> None:
    calls = CallsTheModel()
    settings = {
        "use_peft": adapter,
        "micro_batch_tokens": 64,
        "save_strategy": "steps",
        "save_steps": 3,
        "lora_dropout": 0.0,
    }
    held_out = {"eval_dataset": chats(4, seed=9), "eval_strategy": "steps", "eval_steps": 3}
    result = run_tiny(callbacks=[calls], packed_execution="on", **settings, **held_out)
    assert {"substep_end", "pre_optimizer_step", "prediction_step", "evaluate", "save", "train_end"} <= calls.answered
    undisturbed = run_tiny(packed_execution="on", overwrite_output_dir=True, **settings, **held_out)
    assert [row.get("loss") for row in result.metrics] == [row.get("loss") for row in undisturbed.metrics]


def test_a_callback_may_take_back_what_is_due(run_tiny: Any, tmp_path: Path) -> None:
    class Never(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            control.should_save = False

    run_tiny(callbacks=[Never()], save_strategy="steps", save_steps=2)
    assert not list((tmp_path / "run" / "checkpoints").glob("step-*"))


def test_transformers_early_stopping_stops_where_our_patience_does(run_tiny: Any) -> None:
    settings: dict[str, Any] = {
        "learning_rate": 3.0, "optim": "sgd", "max_steps": 30, "eval_dataset": chats(4, 8), "eval_strategy": "steps",
        "eval_steps": 1, "on_nonfinite_step": "skip", "metric_for_best_model": "mean_token_accuracy",
    }  # fmt: skip
    ours = run_tiny(early_stopping_patience=3, **settings)
    theirs = run_tiny(callbacks=[EarlyStoppingCallback(3)], overwrite_output_dir=True, **settings)
    assert ours.steps == theirs.steps < 30


@pytest.mark.parametrize("strategy", ["steps", "no"])
def test_a_run_that_ends_early_is_saved(strategy: str, run_tiny: Any, tmp_path: Path) -> None:
    saves = {"save_strategy": strategy} | ({"save_steps": 2} if strategy == "steps" else {})
    result = run_tiny(callbacks=[Asks("step_end", training_stop=(3,))], **saves)
    assert result.steps == 3
    saved = sorted(p.name for p in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert saved == (["step-2", "step-3"] if strategy == "steps" else [])


@pytest.mark.parametrize(("flag", "says"), [("evaluate", "no held-out data"), ("epoch_stop", "should_training_stop")])
def test_what_cannot_be_done_is_an_error_that_loses_nothing(
    flag: str, says: str, run_tiny: Any, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=rf"(?s)step 3.*should_{flag}.*{says}"):
        run_tiny(callbacks=[Asks("step_end", **{flag: (3,)})], save_strategy="steps", save_steps=100)
    assert [p.name for p in (tmp_path / "run" / "checkpoints").glob("step-*")] == ["step-3"]
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]


def test_what_is_no_callback_is_an_error(run_tiny: Any) -> None:
    with pytest.raises(ConfigError, match=r"print.*TrainerCallback"):
        run_tiny(callbacks=[print])


def test_the_history_of_an_earlier_process_may_be_handed_over() -> None:
    import torch

    from dynotune import SFTConfig
    from dynotune.train.events import Events
    from dynotune.train.state import Progress

    class Trainee:
        model = tokenizer = schedule = None
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
        progress = Progress()

    class Plan:
        total_steps, steps_per_epoch, examples_per_step = 10, 4, 2

    events: Any = Events([], SFTConfig(), Trainee(), Plan())  # type: ignore[arg-type]
    events.remember([{"step": 1, "loss": 2.0}])
    events.log(2, 0.5, {"loss": 1.0})
    assert [(row["step"], row["loss"]) for row in events.state.log_history] == [(1, 2.0), (2, 1.0)]
    assert events.state.num_train_epochs == 3


class DisablesAdapters(TrainerCallback):
    """From the second step on, as someone who measures the base model and forgets to put the adapters back."""

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        if state.global_step == 2:
            model.get_base_model().model.layers[0].mlp.down_proj._disable_adapters = True


@pytest.mark.parametrize(("callbacks", "said"), [((), False), ((DisablesAdapters,), True), ((CallsTheModel,), False)])
def test_kernels_that_step_aside_during_a_run_are_counted_at_its_end(callbacks: Any, said: bool, run_tiny: Any) -> None:
    screen = Console(file=io.StringIO(), width=400)
    lora = {"use_peft": True, "lora_dropout": 0.0, "lora_target_modules": "all-linear"}
    run_tiny(callbacks=callbacks, packed_execution="on", console=screen, max_steps=5, **lora)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert ("note: fused_lora: 3 calls in training and evaluation stepped aside" in text) == said
    assert ("stepped aside" in text) == said
