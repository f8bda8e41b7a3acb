"""Promise: what a run of pairs says that it uses was seen in one of its steps, and what goes wrong is dealt with as in any
other run: the same steps in any layout, smaller micro-batches where memory runs out, a culprit that is named.
"""

import json
import math
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import TrainerCallback

from dynotune.config.dpo import DPOConfig
from dynotune.errors import TrainingError
from dynotune.execution.pairs import PairsPath
from dynotune.model.lora.linear import FusedLinear
from dynotune.speedups.declared import compiled_layers
from dynotune.train.dpo import train_dpo
from tests.tiny import sentences, tiny_model, tiny_tokenizer

ENGAGED = ("packed_execution", "shared_prompt", "labelled_rows_head", "fused_lora", "prefetch", "fused_optimizer")
LORA: dict[str, Any] = {"use_peft": True, "lora_r": 4, "lora_dropout": 0.0, "lora_target_modules": "all-linear"}
APART: dict[str, Any] = {"speedups": {"shared_prompt": "off"}}


def rows(n: int = 16) -> list[dict[str, str]]:
    texts = sentences(4 * n)
    return [
        {"prompt": f"{next(texts)} {next(texts)}", "chosen": f" {next(texts)}", "rejected": f" {next(texts)}"}
        for _ in range(n)
    ]


@pytest.fixture
def dpo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))

    def go(callbacks: Any = (), console: Any = None, **settings: Any) -> Any:
        config = {
            "output_dir": str(tmp_path / "run"), "per_device_train_batch_size": 4, "max_steps": 4, "logging_steps": 1,
            "save_strategy": "no", "learning_rate": 1e-3, "use_cpu": True, "lr_scheduler_type": "constant", **settings,
        }  # fmt: skip
        return train_dpo(
            DPOConfig(**config),
            model=tiny_model(),
            tokenizer=tiny_tokenizer(),
            train_dataset=rows(),
            callbacks=callbacks,
            console=console or Console(quiet=True),
        )

    return go


def seen(tmp_path: Path) -> dict[str, str]:
    observed = json.loads((tmp_path / "run" / "engagement.json").read_text())["observations"]
    return {name: one["verdict"] for name, one in observed.items()}


def losses(result: Any) -> list[float]:
    return [row["loss"] for row in result.metrics if "loss" in row]


def test_everything_is_engaged_in_the_second_step(dpo: Any, tmp_path: Path) -> None:
    dpo(max_steps=2, **LORA)
    assert seen(tmp_path) == dict.fromkeys(ENGAGED, "engaged")


@pytest.mark.parametrize("name", ["packed_execution", "labelled_rows_head"])
def test_what_something_else_did_is_not_engaged(
    name: str, dpo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: it is installed as far as anybody says."""
    if name == "packed_execution":

        def loss(path: PairsPath, batch: Any) -> Any:
            return path.loss_one_by_one(batch), torch.zeros(len(path.objective.sums))

        monkeypatch.setattr(PairsPath, "loss", loss)
        with pytest.raises(TrainingError, match="packed_execution was not seen to run"):
            dpo(max_steps=2)
    else:
        scores = PairsPath.scores

        def of_all_logits(path: PairsPath, batch: Any, **more: Any) -> Any:
            path.site.labelled_rows = False
            return scores(path, batch, **more)

        monkeypatch.setattr(PairsPath, "scores", of_all_logits)
        dpo(max_steps=2)
    assert seen(tmp_path)[name] == "not engaged"


class Hooks(TrainerCallback):  # type: ignore[misc]
    """Counts what hangs on the model's modules and parameters behind each step. leaks: it hangs one more on each time."""

    def __init__(self, leaks: bool) -> None:
        self.leaks, self.counts = leaks, list[int]()

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if self.leaks:
            model.register_forward_hook(lambda *_: None)
        tables = [kept for module in model.modules() for name, kept in vars(module).items() if name.endswith("_hooks")]
        tables += [p._post_accumulate_grad_hooks for p in model.parameters() if p._post_accumulate_grad_hooks]
        tables += [p._backward_hooks for p in model.parameters() if p._backward_hooks]
        self.counts.append(sum(len(kept) for kept in tables))


@pytest.mark.parametrize("leaks", [False, True])
def test_steps_leave_no_hooks_behind(dpo: Any, leaks: bool) -> None:
    """The second step is traced, and in each the adapter is switched off for the reference: nothing of that stays behind."""
    hooks = Hooks(leaks)
    dpo(callbacks=[hooks], precompute_ref_log_probs=False, **LORA)
    assert len(hooks.counts) == 4
    assert (len({*hooks.counts}) == 1) is not leaks


@pytest.mark.long
def test_compiled_layers_are_compiled_before_the_first_step_and_never_again(
    dpo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs that share more or less than others bring other counts of keys: none of them compiles anything."""
    monkeypatch.setattr(compiled_layers, "COMPILER", "aot_eager")
    torch._dynamo.reset()
    console = Console(record=True, width=400)
    dpo(console=console, speedups={"compiled_layers": "on"}, micro_batch_tokens=128, max_steps=8, **LORA)
    said = console.export_text()
    assert seen(tmp_path)["compiled_layers"] == "engaged"
    assert "fault" not in said
    assert said.count("(compile cache ") == 1  # nothing was compiled behind the warm-up


@pytest.mark.parametrize("settings", [APART, {"packed_execution": "off"}, {"micro_batch_tokens": 128}])
def test_steps_are_the_same_in_any_layout(settings: Any, dpo: Any) -> None:
    right = losses(dpo())
    assert losses(dpo(overwrite_output_dir=True, **settings)) == pytest.approx(right, rel=1e-5)


def test_a_run_goes_on_in_another_layout(dpo: Any) -> None:
    """What a step contains does not depend on what is computed once."""
    right = losses(dpo())
    dpo(max_steps=2, save_strategy="steps", save_steps=2, overwrite_output_dir=True)
    rest = dpo(resume_from_checkpoint=True, **APART)
    assert losses(rest) == pytest.approx(right[2:], rel=1e-4)


class From(TrainerCallback):
    """True from one step on."""

    def __init__(self, step: int) -> None:
        self.step, self.on = step, False

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.on = state.global_step + 1 >= self.step


def test_a_speed_up_that_spoils_a_step_is_named(dpo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, fused = From(3), FusedLinear.__call__

    def spoiled(*args: Any, **more: Any) -> Any:
        y = fused(*args, **more)
        return y * math.nan if bad.on else y

    monkeypatch.setattr(FusedLinear, "__call__", spoiled)
    with pytest.raises(TrainingError, match="Likely culprit: fused_lora: without it the step is finite"):
        dpo(callbacks=[bad], **LORA)


def test_memory_that_runs_out_makes_smaller_micro_batches(dpo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right, own, sizes = losses(dpo()), PairsPath.loss, list[int]()

    def loss(path: PairsPath, batch: Any) -> Any:
        sizes.append(len(batch.laid.ids_T))
        if sizes[-1] > 192:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return own(path, batch)

    monkeypatch.setattr(PairsPath, "loss", loss)
    console = Console(file=StringIO(), width=300)
    assert losses(dpo(overwrite_output_dir=True, console=console)) == pytest.approx(right, rel=1e-5)
    assert max(sizes) > 192 >= sizes[-1]
