"""Promise: a run with compiled layers takes the steps that it would have taken, is proved in one of them, and says what
compiling cost."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import TrainerCallback

from dynotune.speedups.declared import compiled_layers
from tests.tiny import chats


def losses(run_tiny: Any, tmp_path: Path, name: str, **settings: Any) -> list[float]:
    run_tiny(
        **{
            "rows": chats(32), "max_steps": 5, "per_device_train_batch_size": 8, "micro_batch_tokens": 128,
            "overwrite_output_dir": True, "logging_steps": 1, "use_peft": True, "lora_target_modules": "all-linear",
            "lora_r": 4, "lora_dropout": 0.0, "eval_strategy": "steps", "eval_steps": 3, "test_split_size": 4,
            **settings,
        }
    )  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    return [row[name] for row in rows if name in row]


@pytest.mark.long
def test_the_same_losses_engaged_and_its_cost_said(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = losses(run_tiny, tmp_path, "loss")
    monkeypatch.setattr(compiled_layers, "COMPILER", "aot_eager")
    console = Console(record=True, width=400)
    torch._dynamo.reset()
    found = losses(run_tiny, tmp_path, "loss", speedups={"compiled_layers": "on"}, console=console)
    assert found == pytest.approx(right, rel=1e-5)
    proof = json.loads((tmp_path / "run" / "engagement.json").read_text())
    verdicts = {name: seen["verdict"] for name, seen in proof["observations"].items()}
    assert verdicts["compiled_layers"] == verdicts["fused_lora"] == "engaged"
    said = console.export_text()
    assert "compiled layers: 2 of 2" in said
    assert "compiling for micro-batches of" in said
    assert "ms without them: it " in said  # has paid after so many steps, or does not pay
    assert "fault" not in said
    assert said.count("(compile cache ") == 1  # nothing was compiled behind the warm-up
    report = proof["facts"]["compiled_layers"]
    tokens = {one["shape"]["tokens"] for one in report["compilations"]}
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert tokens == {int(rung) for rung in plan["layout"]["ladder"]}
    assert report["comparison"]["tokens"] in tokens
    assert (report["break_even_steps"] is None) == (report["why_no_break_even"] == "it saves no time here")


@pytest.mark.long
def test_layers_that_are_compiled_again_behind_the_proof_are_told_in_their_step(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Changes(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, model: Any, **more: Any) -> None:
            if state.global_step == 3:  # of five, and the second one is the proof
                for layer in model.get_decoder().layers:
                    layer.self_attn.scaling *= 1.5

    monkeypatch.setattr(compiled_layers, "COMPILER", "aot_eager")
    console = Console(record=True, width=400)
    torch._dynamo.reset()
    on = {"compiled_layers": "on"}
    losses(run_tiny, tmp_path, "loss", speedups=on, console=console, callbacks=[Changes()], eval_strategy="no")
    said = console.export_text()
    assert said.count("warning: recompiling: ") == 1
    assert "scaling" in said
    assert "graphs were made again in all" in said
    (sign,) = map(json.loads, (tmp_path / "run" / "warnings.jsonl").read_text().splitlines())
    assert (sign["step"], sign["name"]) == (4, "recompiling")
