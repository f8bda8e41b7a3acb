"""Promise: a step that is not finite leaves the state of the step before it, and what was likely at fault is named."""

import json
import math
import threading
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from transformers import AttentionInterface, TrainerCallback

from dynotune.errors import TrainingError
from dynotune.execution.feed import Documents
from dynotune.model.attention.call import NAME
from dynotune.model.head import Head
from dynotune.model.lora.linear import FusedLinear
from dynotune.speedups.remembered import Remembered
from dynotune.train.faults.examine import Examination, Outcome, narrowed
from tests.speedups.upgraded import upgraded
from tests.tiny import chats, tiny_model

LORA: dict[str, Any] = {"use_peft": True, "lora_r": 4, "lora_dropout": 0.3, "lora_target_modules": "all-linear"}
RARE = 335


class From(TrainerCallback):
    """True from one step on, and nowhere else: what goes wrong then stays wrong when the step is taken again."""

    def __init__(self, step: int, steps: int = 999) -> None:
        self.step, self.steps, self.on, self.snapshots = step, steps, False, dict[int, list[torch.Tensor]]()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.on = self.step <= state.global_step + 1 < self.step + self.steps

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
        self.snapshots[state.global_step] = [p.detach().clone() for p in model.parameters()]


def rows_with_a_rare_token(at: int, n: int = 12) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(3)
    rows = [{"input_ids": torch.randint(5, 300, (8,), generator=generator).tolist()} for _ in range(n)]
    rows[at]["input_ids"][4] = RARE
    return rows


def overflowing() -> Any:
    """A model in which one token's activations are finite before a product, and not behind it."""
    model, rare = tiny_model(), torch.zeros(0)

    def see(module: Any, args: Any) -> None:
        nonlocal rare
        rare = (args[0] == RARE)[..., None]

    product = model.model.layers[1].mlp.down_proj
    torch.nn.init.constant_(product.weight, 1.0)
    model.model.embed_tokens.register_forward_pre_hook(see)
    product.register_forward_pre_hook(lambda module, args: (args[0].masked_fill(rare, 3e38),))
    return model


def fails(run_tiny: Any, **settings: Any) -> str:
    with pytest.raises(TrainingError) as caught:
        run_tiny(**{"train_sampling_strategy": "sequential", "logging_steps": 100, **settings})
    return str(caught.value)


def report(tmp_path: Path) -> Any:
    return json.loads((tmp_path / "run" / "nonfinite.json").read_text())


def test_a_weights_gradient(run_tiny: Any, tmp_path: Path) -> None:
    model, bad = tiny_model(), From(3)
    weight = model.model.layers[1].mlp.down_proj.weight
    weight.register_hook(lambda gradient: gradient * math.nan if bad.on else gradient)
    text = fails(run_tiny, model=model, callbacks=[bad])
    assert "Step 3 is not finite" in text
    assert "the first gradient of parameter that is not finite is that of model.layers.1.mlp.down_proj.weight" in text
    assert "every document of the step is not finite alone" in text
    found = report(tmp_path)
    assert found["examinations"][0]["place"]["name"] == "model.layers.1.mlp.down_proj.weight"
    assert [row["step"] for row in found["steps_before"]] == [1, 2]


def test_one_document_and_the_layer(run_tiny: Any, tmp_path: Path) -> None:
    text = fails(run_tiny, model=overflowing(), rows=rows_with_a_rare_token(5))
    assert "Step 3 is not finite" in text
    (culprit,) = [line for line in text.splitlines() if "culprit" in line]
    assert ":6," in culprit  # rows count from 1
    assert "layer model.layers.1.mlp.down_proj gave the first value that is not finite" in culprit
    assert "its input reached 3e+38" in culprit
    outcomes = report(tmp_path)["examinations"][0]["outcomes"]
    assert [(one["way"], one["finite"]) for one in outcomes[:2]] == [("as executed", False), ("the plain path", False)]
    assert sorted(one["finite"] for one in outcomes[2:]) == [False, True]  # the step's other document is not at fault


def test_a_weight_that_is_not_finite_itself(run_tiny: Any) -> None:
    model = tiny_model()

    class Spoil(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 2:
                with torch.no_grad():
                    model.model.layers[0].mlp.up_proj.weight[0, 0] = math.inf

    fused = fails(run_tiny, model=model, callbacks=[Spoil()])
    assert "layer model.layers.0.mlp.up_proj" in fused
    assert "its weight is not finite itself" in fused
    written = (
        "model.layers.0.mlp.up_proj.weight, which training changes, is not finite itself: the update of step 2 wrote it"
    )
    assert f"{written} (`fused_optimizer`, which cannot be tried on an update that is over" in fused
    model = tiny_model()
    off = {"speedups": {"fused_optimizer": "off"}, "overwrite_output_dir": True}
    plain = fails(run_tiny, model=model, callbacks=[Spoil()], **off)
    assert f"{written}, or a callback or hook" in plain
    assert "fused_optimizer" not in plain


@pytest.mark.parametrize("kind", ["packed_execution", "labelled_rows_head", "fused_lora"])
def test_a_speed_up(kind: str, run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = From(3)
    attention: Any = AttentionInterface._global_mapping.get(NAME)

    def spoiled_attention(*args: Any, **more: Any) -> Any:
        output, rest = real(*args, **more)
        return (output * math.nan if bad.on else output), rest

    if kind == "packed_execution":
        from dynotune.model.attention import call, install

        real = call.packed_attention_call
        monkeypatch.setattr(install, "packed_attention_call", spoiled_attention)
    elif kind == "labelled_rows_head":
        head = Head.__call__

        def spoiled_head(*args: Any) -> Any:
            loss, sums = head(*args)
            return (loss * math.nan if bad.on else loss), sums

        monkeypatch.setattr(Head, "__call__", spoiled_head)
    else:
        fused = FusedLinear.__call__

        def spoiled_linear(*args: Any, **more: Any) -> Any:
            y = fused(*args, **more)
            return y * math.nan if bad.on else y

        monkeypatch.setattr(FusedLinear, "__call__", spoiled_linear)
    text = fails(run_tiny, callbacks=[bad], **LORA)
    if attention is not None:
        AttentionInterface.register(NAME, attention)
    assert f"Likely culprit: {kind}: without it the step is finite" in text
    tried = {one["way"]: one["finite"] for one in report(tmp_path)["examinations"][0]["outcomes"]}
    assert tried["as executed"] is False
    assert tried["the plain path"] is True
    assert [way for way, finite in tried.items() if finite and way.startswith("without")] == [f"without {kind}"]
    assert f"{kind} is left out of later runs of its kind on this machine" in text
    failure = Remembered.here("cpu").failure(kind, "sft of LlamaForCausalLM under LORA")
    assert failure is not None
    assert failure.reason == "step 3 of a run was not finite with it, and finite without it"
    bad.on = False
    again = run_tiny(**LORA, overwrite_output_dir=True)
    record = json.loads((again.folder / "engagement.json").read_text())
    [row] = [row for row in record["rows"] if row["name"] == kind]
    assert "failed on this machine" in json.dumps(row)
    with upgraded("transformers"):
        assert Remembered.here("cpu").failure(kind, "sft of LlamaForCausalLM under LORA") is None


def from_the_third_step_on_made_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document gets another token where it is laid out in the feed's thread."""
    of, calls = Documents.of, list[int]()

    def spoiled(self: Documents, batch: Any) -> Any:
        documents = of(self, batch)
        if not threading.current_thread().name.startswith("dynotune-feed"):
            return documents
        calls.append(len(documents))
        if sum(calls) > 4:
            ids, labels = documents[0]
            documents[0] = np.where(np.arange(len(ids)) == 4, RARE, ids).astype(ids.dtype), labels
        return documents

    monkeypatch.setattr(Documents, "of", spoiled)


def test_micro_batches_that_are_made_ahead(run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_the_third_step_on_made_ahead(monkeypatch)
    text = fails(run_tiny, model=overflowing(), rows=rows_with_a_rare_token(11)[:11])
    assert "Likely culprit: prefetch: with micro-batches made one by one the step is finite" in text
    tried = {one["way"]: one["finite"] for one in report(tmp_path)["examinations"][0]["outcomes"]}
    assert tried == {"as executed": True, "as executed, unwatched": True, "as executed, made ahead": False}
    assert "prefetch is left out of later runs of its kind on this machine" in text
    again = run_tiny(model=overflowing(), rows=rows_with_a_rare_token(11)[:11], overwrite_output_dir=True)
    record = json.loads((again.folder / "engagement.json").read_text())
    [row] = [row for row in record["rows"] if row["name"] == "prefetch"]
    assert "failed on this machine" in json.dumps(row)


def test_a_kernel_that_steps_aside_where_modules_are_watched(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first repetition hooks every module, and such a kernel does not run in it."""
    bad, fused = From(3), FusedLinear.__call__

    def spoiled(linear: Any, *args: Any, **more: Any) -> Any:
        y = fused(linear, *args, **more)
        return y * math.nan if bad.on and not linear.module._forward_hooks else y

    monkeypatch.setattr(FusedLinear, "__call__", spoiled)
    text = fails(run_tiny, callbacks=[bad], **LORA)
    assert "Likely culprit: fused_lora: without it the step is finite" in text
    tried = {one["way"]: one["finite"] for one in report(tmp_path)["examinations"][0]["outcomes"]}
    assert tried["as executed"] is True
    assert tried["as executed, unwatched"] is False
    assert Remembered.here("cpu").forget("fused_lora") != []


def test_what_needs_another_is_told_apart_from_it() -> None:
    requires = {"fused_lora": ("packed_execution",), "lora_in_activation": ("fused_lora", "gate"), "gate": ()}
    assert narrowed(["gate", "fused_lora", "lora_in_activation"], requires) == ["lora_in_activation"]
    assert narrowed(["gate", "fused_lora"], requires) == ["gate", "fused_lora"], "neither needs the other"
    assert narrowed(["fused_lora", "packed_execution"], requires) == ["fused_lora", "packed_execution"]


def test_a_rank_that_saw_it_unwatched_only_has_something_to_say() -> None:
    def of(*finite: bool | None) -> int:
        ways = ("as executed", "as executed, unwatched", "as executed, launched")
        return Examination([Outcome(way, finite=one) for way, one in zip(ways, finite, strict=False)]).weight()

    assert (of(), of(None), of(True, True), of(False), of(True, False), of(True, False, True)) == (1, 1, 0, 2, 2, 2)


def test_nothing_is_left_out_for_what_was_not_told_apart_from_others(
    run_tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time is over after the first of several."""
    bad, head, asked = From(3), Head.__call__, [0]

    def spoiled_head(*args: Any) -> Any:
        loss, sums = head(*args)
        return (loss * math.nan if bad.on else loss), sums

    def in_time(repeat: Any) -> bool:
        asked[0] += 1
        return asked[0] <= 3  # the plain path, without LoRA's functions, without the head

    monkeypatch.setattr(Head, "__call__", spoiled_head)
    monkeypatch.setattr("dynotune.train.faults.examine._Repeat.in_time", in_time)
    text = fails(run_tiny, callbacks=[bad], **LORA)
    assert "Likely culprit: labelled_rows_head" in text
    assert "not examined: without packed_execution: no time was left" in text
    assert "left out of later runs" not in text
    assert Remembered.here("cpu").forget("labelled_rows_head") == []


def test_a_speed_up_that_was_demanded_is_not_forgotten_for_it(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, head = From(3), Head.__call__

    def spoiled_head(*args: Any) -> Any:
        loss, sums = head(*args)
        return (loss * math.nan if bad.on else loss), sums

    monkeypatch.setattr(Head, "__call__", spoiled_head)
    text = fails(run_tiny, callbacks=[bad], speedups={"labelled_rows_head": "on"})
    assert "Likely culprit: labelled_rows_head" in text
    assert "left out of later runs" not in text
    assert Remembered.here("cpu").forget("labelled_rows_head") == []


def test_what_does_not_repeat_is_not_pinned_on_anything(run_tiny: Any, tmp_path: Path) -> None:
    model, calls = tiny_model(), 0

    def once(module: Any, args: Any, output: Any) -> Any:
        nonlocal calls
        calls += module.training and torch.is_grad_enabled()
        return output * math.nan if module.training and torch.is_grad_enabled() and calls == 3 else output

    model.model.norm.register_forward_hook(once)
    text = fails(run_tiny, model=model)
    assert "nothing that repeats" in text
    assert report(tmp_path)["examinations"][0]["place"] is None


def test_the_examination_ends_in_time_and_says_what_it_left_out(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynotune.train.faults.examine.SECONDS", 0.0)
    text = fails(run_tiny, model=overflowing(), rows=rows_with_a_rare_token(5))
    assert "not examined: the plain path: no time was left" in text


@pytest.mark.parametrize("optim", ["adamw_torch_fused", "sgd", "adafactor"])
def test_weights_and_states_are_those_before_the_step_however_late_it_is_read(
    optim: str, run_tiny: Any, tmp_path: Path
) -> None:
    settings = {"optim": optim, "logging_steps": 100, "max_steps": 8, "overwrite_output_dir": True}
    clean = From(999)
    run_tiny(callbacks=[clean], **settings)
    model, bad = tiny_model(), From(3, steps=1)  # the steps behind it are finite again
    model.model.norm.register_forward_hook(
        lambda module, args, output: output * math.nan if bad.on and module.training else output
    )
    with pytest.raises(TrainingError, match="Step 3"):
        run_tiny(model=model, callbacks=[bad], **settings)
    assert max(bad.snapshots) == 8  # it was read of at the end
    for number in range(2, 9):
        assert all(map(torch.equal, bad.snapshots[number], clean.snapshots[2]))
    assert not all(map(torch.equal, clean.snapshots[3], clean.snapshots[2]))  # a control
    assert all(map(torch.equal, (p for p in model.parameters()), clean.snapshots[2]))


def test_the_step_before_is_saved_and_goes_on_as_if_nothing_had_happened(run_tiny: Any, tmp_path: Path) -> None:
    settings = {
        **LORA,
        "max_steps": 8,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 100,
        "lr_scheduler_type": "cosine",
        "logging_strategy": "steps",
    }
    whole = run_tiny(output_dir=str(tmp_path / "whole"), **settings)
    model, bad = tiny_model(), From(4)
    model.model.norm.register_forward_hook(
        lambda module, args, output: output * math.nan if bad.on and module.training else output
    )
    console = Console(file=StringIO(), width=200)
    with pytest.raises(TrainingError, match=r"(?s)Step 4.*resume_from_checkpoint: .*step-3"):
        run_tiny(model=model, callbacks=[bad], console=console, **{**settings, "logging_steps": 7})
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-3"]
    resumed = run_tiny(resume_from_checkpoint=True, **settings)
    figures = {r["step"]: (r["loss"], r["learning_rate"], r["num_tokens"]) for r in whole.metrics}
    again = {r["step"]: (r["loss"], r["learning_rate"], r["num_tokens"]) for r in resumed.metrics}
    assert sorted(again) == [4, 5, 6, 7, 8]
    assert again == {step: figures[step] for step in again}
    for (name, a), (_, b) in zip(whole.model.named_parameters(), resumed.model.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    assert resumed.summary["skipped_steps"] == []


@pytest.mark.parametrize(
    ("steps", "limits", "ends_at"),
    [
        (2, {"max_consecutive_nonfinite_steps": 2}, None),
        (3, {"max_consecutive_nonfinite_steps": 2}, 5),
        (3, {"max_nonfinite_steps": 2, "max_consecutive_nonfinite_steps": 99}, 5),
        (99, {"max_nonfinite_steps": 1}, 4),
    ],
)
@pytest.mark.parametrize("optim", ["adamw_torch_fused", "adafactor"])
def test_skipping_has_a_limit(optim: str, steps: int, limits: Any, ends_at: int | None, run_tiny: Any) -> None:
    model, bad = tiny_model(), From(3, steps)
    model.model.norm.register_forward_hook(
        lambda module, args, output: output * math.nan if bad.on and module.training else output
    )
    settings: dict[str, Any] = {
        "optim": optim,
        "on_nonfinite_step": "skip",
        "max_steps": 8,
        "logging_steps": 100,
        **limits,
    }
    if ends_at is None:
        result = run_tiny(model=model, callbacks=[bad], **settings)
        assert result.summary["skipped_steps"] == [3, 4]
        assert not all(map(torch.equal, bad.snapshots[5], bad.snapshots[2]))
        return
    with pytest.raises(TrainingError, match=rf"(?s)Step {ends_at} is not finite.*max_\w*nonfinite_steps: \d+"):
        run_tiny(model=model, callbacks=[bad], **settings)
    assert all(map(torch.equal, bad.snapshots[8], bad.snapshots[2]))  # also where steps behind the limit were finite


@pytest.mark.parametrize(
    ("limits", "bad_at"),
    [({"max_nonfinite_steps": 2}, 6), ({"max_consecutive_nonfinite_steps": 2}, 5)],
)
def test_the_limit_counts_what_was_skipped_before_a_resume(
    limits: Any, bad_at: int, run_tiny: Any, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"on_nonfinite_step": "skip", "max_steps": 8, "logging_steps": 100, **limits}
    settings |= {"save_strategy": "steps", "save_steps": 4}

    def run(bad: From, **more: Any) -> None:
        model = tiny_model()
        model.model.norm.register_forward_hook(
            lambda module, args, output: output * math.nan if bad.on and module.training else output
        )
        run_tiny(model=model, callbacks=[bad], **settings, **more)

    run(From(3, 2))
    bad = From(bad_at, 1)
    with pytest.raises(TrainingError, match=f"Step {bad_at} is not finite"):
        run(bad, resume_from_checkpoint=str(tmp_path / "run" / "checkpoints" / "step-4"))
    # The device counts on, too: the host reads of the step only at the save of step 8.
    assert all(map(torch.equal, bad.snapshots[8], bad.snapshots[bad_at]))


def test_rows_of_the_steps_before_are_written(run_tiny: Any, tmp_path: Path) -> None:
    model, bad = tiny_model(), From(4)
    model.model.norm.register_forward_hook(
        lambda module, args, output: output * math.nan if bad.on and module.training else output
    )
    fails(run_tiny, model=model, callbacks=[bad], rows=chats(12))
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], "loss" in row, "nonfinite" in row) for row in rows] == [(3, True, False), (4, False, True)]
