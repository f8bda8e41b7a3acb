"""Promise: memory that runs out costs a step's time, never a run and never a different result."""

import json
import random
import weakref
from collections.abc import Callable
from io import StringIO
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from transformers import TrainerCallback

from dynotune.errors import ModelError, TrainingError
from dynotune.execution.packed import PackedPath
from tests.tiny import chats, tiny_model

MESSAGE = (
    "CUDA out of memory. Tried to allocate 352.00 KiB. GPU 0 has a total capacity of 79.15 GiB of which 17.62 MiB is free."
    " Process 4242 has 8.00 GiB memory in use. Including non-PyTorch memory, this process has 70.99 GiB memory in use. Of"
    " the allocated memory 60.00 GiB is allocated by PyTorch, and 10.00 GiB is reserved by PyTorch but unallocated. If"
    " reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True."
)

SETTINGS: dict[str, Any] = {
    "per_device_train_batch_size": 12,
    "micro_batch_tokens": 512,
    "max_steps": 3,
    "max_length": 100,
    "overwrite_output_dir": True,
    "learning_rate": 1e-3,
}
ROWS = chats(36)


class Device:
    """A memory that holds micro-batches of up to `holds` tokens: larger ones fail from step `since` on."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, holds: int, where: str, since: int = 2, times: int = 99
    ) -> None:
        self.holds, self.where, self.since, self.times = holds, where, since, times
        self.failed: list[int] = []
        self.tokens: list[int] = []
        self.graph: list[weakref.ref[torch.Tensor]] = []
        self.steps = 0
        loss = PackedPath.loss

        def watched(path: PackedPath, batch: Any) -> Any:
            tokens = len(batch.ids_T)
            training = path.model.training and torch.is_grad_enabled()
            if not training and where != "evaluation":
                return loss(path, batch)
            fails = tokens > self.holds and self.steps + 1 >= self.since and len(self.failed) < self.times
            if (where == "evaluation") == training:
                fails = False
            if fails and where != "backward":
                self.failed.append(tokens)
                activations = torch.ones(1000, 10)
                self.graph.append(weakref.ref(activations))
                raise torch.OutOfMemoryError(MESSAGE)
            value, sums = loss(path, batch)
            self.tokens.append(tokens)
            if fails:
                self.graph.append(weakref.ref(value))
                value = value * 1.0
                value.register_hook(lambda gradient: self.fail(tokens))
            return value, sums

        monkeypatch.setattr(PackedPath, "loss", watched)

    def fail(self, tokens: int) -> None:
        self.failed.append(tokens)
        raise torch.OutOfMemoryError(MESSAGE)


class Counts(TrainerCallback):
    """The events of a run, and at which step."""

    def __init__(self, device: Device | None = None) -> None:
        self.device, self.events = device, []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.events.append(("begin", state.global_step))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.events.append(("end", state.global_step))
        if self.device:
            self.device.steps = state.global_step
            assert not any(tensor() is not None for tensor in self.device.graph)


def said(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def weights(result: Any) -> list[torch.Tensor]:
    return [p.detach().clone() for p in result.model.parameters()]


@pytest.fixture
def with_limit(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Device, str]]:
    def go(holds: int, where: str, since: int = 2, times: int = 99, **more: Any) -> tuple[Any, Device, str]:
        console = Console(file=StringIO(), width=200)
        with monkeypatch.context() as patch:
            device = Device(patch, holds, where, since, times)
            counts = Counts(device)
            result = run_tiny(callbacks=[counts], console=console, rows=ROWS, **{**SETTINGS, **more})
        steps = more.get("max_steps", SETTINGS["max_steps"])
        assert counts.events == [(what, n + (what == "end")) for n in range(steps) for what in ("begin", "end")]
        return result, device, said(console)

    return go


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_the_step_is_taken_again_smaller_with_the_same_result(where: str, run_tiny: Any, with_limit: Any) -> None:
    whole = run_tiny(rows=ROWS, **SETTINGS)
    before = weights(whole)
    result, device, text = with_limit(400, where)
    assert device.failed  # the control below shows that this can be otherwise
    assert max(device.tokens[-3:]) <= 400
    for a, b in zip(whole.metrics, result.metrics, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], rel=1e-5)
        assert b["grad_norm"] == pytest.approx(a["grad_norm"], rel=1e-4)
        assert b["num_tokens"] == a["num_tokens"]
    for p, q in zip(before, weights(result), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-4)
    assert f"out of memory in {where} at step 2, micro-batch 2" in text
    assert result.summary["out_of_memory"][0]["step"] == 2


def test_nothing_is_said_or_lowered_where_memory_is_enough(with_limit: Any) -> None:
    result, device, text = with_limit(4096, "forward")
    assert not device.failed
    assert "out of memory" not in text
    assert result.summary["out_of_memory"] == []


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_run_that_fails_at_once_is_bitwise_one_that_began_smaller(where: str, run_tiny: Any, with_limit: Any) -> None:
    failed, device, _ = with_limit(400, where, since=1)
    assert device.failed
    top = failed.summary["out_of_memory"][-1]["micro_batch_tokens"]
    smaller = run_tiny(rows=ROWS, **{**SETTINGS, "micro_batch_tokens": top})
    assert [r["loss"] for r in failed.metrics] == [r["loss"] for r in smaller.metrics]
    assert all(torch.equal(a, b) for a, b in zip(weights(failed), weights(smaller), strict=True))
    # a control: that run's layout is another one, to the bit
    larger = run_tiny(rows=ROWS, **SETTINGS)
    assert not all(torch.equal(a, b) for a, b in zip(weights(failed), weights(larger), strict=True))


def test_dropout_draws_what_a_smaller_run_draws_and_it_is_said(run_tiny: Any, with_limit: Any) -> None:
    lora = {"use_peft": True, "lora_r": 4, "lora_dropout": 0.3, "lora_target_modules": "all-linear"}
    failed, device, text = with_limit(400, "backward", since=1, **lora)
    assert device.failed
    top = failed.summary["out_of_memory"][-1]["micro_batch_tokens"]
    smaller = run_tiny(rows=ROWS, **{**SETTINGS, **lora, "micro_batch_tokens": top})
    assert [r["loss"] for r in failed.metrics] == [r["loss"] for r in smaller.metrics]
    assert all(torch.equal(a, b) for a, b in zip(weights(failed), weights(smaller), strict=True))
    assert "another layout draws other masks" in text


def test_random_states_are_those_of_the_steps_beginning(run_tiny: Any, with_limit: Any, monkeypatch: Any) -> None:
    drawn: list[tuple[float, float, float]] = []
    loss = PackedPath.loss

    def draws(path: PackedPath, batch: Any) -> Any:
        drawn.append((random.random(), float(np.random.rand()), float(torch.rand(()))))
        return loss(path, batch)

    monkeypatch.setattr(PackedPath, "loss", draws)
    _, device, _ = with_limit(400, "backward", since=1, times=1, max_steps=1)
    assert len(device.failed) == 1
    assert drawn[0] == drawn[1]
    assert drawn[1] != drawn[2]


def test_a_seldom_error_lowers_once_and_not_again(with_limit: Any) -> None:
    result, device, text = with_limit(400, "forward", times=1, max_steps=6)
    assert len(device.failed) == len(result.summary["out_of_memory"]) == 1
    assert text.count("is taken again") == 1


def test_where_nothing_smaller_holds_the_longest_document_it_ends_with_the_whole_explanation(
    with_limit: Any, tmp_path: Any
) -> None:
    with pytest.raises(TrainingError) as caught:
        with_limit(8, "forward", save_strategy="steps", save_steps=100)
    text = str(caught.value)
    assert "out of memory in forward at step 2" in text
    assert "352.00 KiB, the size of" in text or "352.00 KiB; no tensor" in text
    assert "17.62 MiB free of 79.15 GiB" in text
    assert "8.00 GiB by other processes" in text
    assert "does not help: `per_device_train_batch_size`" in text
    assert "helps: the environment variable `PYTORCH_ALLOC_CONF=expandable_segments:True`" in text
    assert "`gradient_checkpointing: true`: an estimated" in text
    assert "step-1" in text
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-1"]


def test_the_checkpoint_that_it_leaves_goes_on_as_if_nothing_had_happened(
    run_tiny: Any, with_limit: Any, tmp_path: Any
) -> None:
    whole = run_tiny(rows=ROWS, output_dir=str(tmp_path / "whole"), **{**SETTINGS, "micro_batch_tokens": 64})
    saves = {"save_strategy": "steps", "save_steps": 100, "micro_batch_tokens": 64}
    with pytest.raises(TrainingError, match="resume_from_checkpoint"):
        with_limit(8, "forward", since=3, **saves)
    settings = {**SETTINGS, **saves, "overwrite_output_dir": False}
    resumed = run_tiny(rows=ROWS, resume_from_checkpoint=True, **settings)
    assert [r["loss"] for r in resumed.metrics] == [r["loss"] for r in whole.metrics[2:]]
    assert all(torch.equal(a, b) for a, b in zip(weights(resumed), weights(whole), strict=True))


def test_a_resume_begins_with_what_the_run_was_lowered_to(run_tiny: Any, with_limit: Any, tmp_path: Any) -> None:
    with_limit(400, "forward", save_strategy="steps", save_steps=3)
    settings = {**SETTINGS, "max_steps": 4, "overwrite_output_dir": False}
    console = Console(file=StringIO(), width=200)
    run_tiny(rows=ROWS, resume_from_checkpoint=True, console=console, **settings)
    assert "to which this run lowered them" in said(console)
    layout = json.loads((tmp_path / "run" / "plan.json").read_text())["layout"]
    assert max(map(int, layout["ladder"])) <= 400


def test_the_plain_path_has_nothing_smaller(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dynotune.execution.plain import PlainPath

    def fail(path: PlainPath, batch: Any) -> Any:
        raise torch.OutOfMemoryError(MESSAGE)

    monkeypatch.setattr(PlainPath, "loss", fail)
    with pytest.raises(TrainingError, match=r"(?s)one document at a time is executed.*`max_length: \d+`"):
        run_tiny(rows=ROWS, packed_execution="off", **SETTINGS)


def test_evaluation_goes_smaller_alone(run_tiny: Any, with_limit: Any) -> None:
    more: dict[str, Any] = {"eval_dataset": chats(20, seed=1), "eval_strategy": "steps", "eval_steps": 1}
    whole = run_tiny(rows=ROWS, **SETTINGS, **more)
    result, device, text = with_limit(300, "evaluation", since=1, **more)
    assert device.failed
    evaluations = [[r["eval_loss"] for r in run.metrics if "eval_loss" in r] for run in (whole, result)]
    assert evaluations[1] == pytest.approx(evaluations[0], rel=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(result), strict=True))
    assert "those of training stay as they are" in text
    assert text.count("evaluated again") == len(device.failed)  # the second evaluation begins with what the first found
    assert result.summary["out_of_memory"] == []


def test_generations_are_left_out_and_it_is_said(run_tiny: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    model = tiny_model()

    def fail(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError(MESSAGE)

    monkeypatch.setattr(model, "generate", fail)
    console = Console(file=StringIO(), width=200)
    more: dict[str, Any] = {"eval_dataset": chats(4, seed=1), "eval_strategy": "steps", "eval_steps": 2}
    result = run_tiny(
        model=model, rows=ROWS, console=console, eval_samples=2, assistant_only_loss=True, **SETTINGS, **more
    )
    assert "this evaluation has no samples" in said(console)
    assert not (tmp_path / "run" / "samples.jsonl").exists()
    assert result.summary["steps"] == 3
    assert result.model.training  # generation put it into evaluation mode, where dropout is off


def test_in_the_optimizer_nothing_smaller_helps(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError(MESSAGE)

    monkeypatch.setattr(torch.optim.AdamW, "step", fail)
    with pytest.raises(
        TrainingError, match=r"(?s)out of memory in optimizer at step 1.*nothing had been trained yet"
    ) as caught:
        run_tiny(rows=ROWS, **SETTINGS)
    assert "an optimizer's states have the size of what is trained" in str(caught.value)
    assert "`use_peft: true` (LoRA): gradients and optimizer states take" in str(caught.value)


def test_other_errors_are_not_taken_for_it(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: PackedPath, batch: Any) -> Any:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(PackedPath, "loss", fail)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        run_tiny(rows=ROWS, **SETTINGS)


def test_what_comes_before_the_first_step_says_what_to_change(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError(MESSAGE)

    for name, phase in (
        ("start.opened.prepare_model", "loading"),
        ("start.stand.choose_execution", "probing"),
        ("sft.SFTRecipe.before_first_step", "the reference"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"dynotune.train.{name}", fail)
            with pytest.raises(ModelError, match=rf"(?s)out of memory in {phase}.*asked for: 352\.00 KiB.*helps:"):
                run_tiny(rows=ROWS, **SETTINGS)


class FailsInTheSecond(TrainerCallback):
    """Memory runs out once, in the second micro-batch of step 2, when the gradient of the first one is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.step, self.seen, self.failed = 0, 0, False
        loss = PackedPath.loss

        def second_fails(path: PackedPath, batch: Any) -> Any:
            if self.step == 2 and torch.is_grad_enabled():
                self.seen += 1
                if self.seen == 2:
                    self.failed = any(p.grad is not None for p in path.model.parameters())
                    raise torch.OutOfMemoryError(MESSAGE)
            return loss(path, batch)

        monkeypatch.setattr(PackedPath, "loss", second_fails)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.step = state.global_step + 1


def test_gradients_that_were_there_when_memory_ran_out_are_not_counted_twice(
    run_tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_tiny(rows=ROWS, **SETTINGS)
    device = FailsInTheSecond(monkeypatch)
    again = run_tiny(rows=ROWS, callbacks=[device], **SETTINGS)
    assert device.failed
    for a, b in zip(whole.metrics, again.metrics, strict=True):
        assert b["grad_norm"] == pytest.approx(a["grad_norm"], rel=1e-4), a["step"]
        assert b["loss"] == pytest.approx(a["loss"], rel=1e-5), a["step"]
