"""Promise: a run says what its traced step should not hold: once, in its file, in the table and by the exit code."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from dynotune.cli import run as run_command
from dynotune.execution.packed import PackedPath
from dynotune.speedups.record import Record
from dynotune.speedups.whole_step import PRODUCTS, WAITS
from tests.speedups.needs_the_head import all_logits
from tests.tiny import chats, tiny_model


def go(run_tiny: Any, tmp_path: Path, model: Any, **settings: Any) -> tuple[dict[str, Any], str]:
    """What the file says of each thing, and what the run said. In bfloat16, as a run on a GPU has it."""
    console = Console(record=True, width=500)
    run_tiny(
        model=model, rows=chats(16), console=console, max_steps=4, per_device_train_batch_size=8,
        micro_batch_tokens=256, **{"bf16": True, **settings},
    )  # fmt: skip
    body = json.loads((tmp_path / "run" / "engagement.json").read_text())
    return {one["what"]: one for one in body["unwanted"]}, console.export_text()


def upcast(model: Any) -> Any:
    """One linear of the second layer, in a patch."""
    projection = model.model.layers[1].mlp.down_proj
    inner = projection.forward

    def outside(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return inner(x.float())

    projection.forward = outside
    return model


def asks(model: Any) -> Any:
    """The first layer looks at a value each time."""
    mlp = model.model.layers[0].mlp
    inner = mlp.forward
    mlp.forward = lambda x: inner(x) if x.detach().abs().max().item() < 1e6 else x
    return model


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"packed_execution": "off"},
        {"use_peft": True, "lora_target_modules": "all-linear", "lora_r": 4},
        {"gradient_checkpointing": True, "use_peft": True, "lora_target_modules": "all-linear", "lora_r": 4},
        {"optim": "adafactor"},
    ],
    ids=["full", "document by document", "lora", "checkpointed", "an optimizer that waits"],
)
def test_an_honest_run_holds_neither(
    settings: dict[str, Any], run_tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, said = go(run_tiny, tmp_path, tiny_model(), **settings)
    assert {what: one["presence"] for what, one in found.items()} == {PRODUCTS: "absent", WAITS: "absent"}
    assert "warning: step" not in said
    assert run_command(["engaged", str(tmp_path / "run")]) == 0
    assert PRODUCTS in capsys.readouterr().out


@pytest.mark.parametrize(
    ("plant", "what", "named"),
    [
        (upcast, PRODUCTS, r"aten::mm of \d+ x 64 \(forward, model.layers.1\) x \d"),
        (asks, WAITS, r"aten::_local_scalar_dense \(forward, model.layers.0\) x \d"),
    ],
)
def test_what_is_planted_is_named_once_and_the_command_exits_with_3(
    plant: Any, what: str, named: str, run_tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, said = go(run_tiny, tmp_path, plant(tiny_model()))
    assert {one["what"] for one in found.values() if one["presence"] == "found"} == {what}
    assert said.count(f"warning: step 2 has {what}:") == 1
    [line] = [line for line in said.splitlines() if "warning: step 2" in line]
    assert re.search(named, line)
    record = Record.read(tmp_path / "run")
    assert not record.open, "every speed-up runs"
    assert run_command(["engaged", str(tmp_path / "run"), "--markdown"]) == 3
    [row] = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"| {what} |")]
    assert re.search(named, row)


def test_a_run_in_float32_may_have_such_products(run_tiny: Any, tmp_path: Path) -> None:
    found, said = go(run_tiny, tmp_path, upcast(tiny_model()), bf16=False)
    assert (found[PRODUCTS]["presence"], found[PRODUCTS]["why"]) == ("allowed", "the run computes in float32")
    assert "warning: step" not in said
    assert run_command(["engaged", str(tmp_path / "run"), "--json"]) == 0


def test_the_warning_is_not_told_again_of_a_second_step(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a speed-up was taken out behind the first."""
    monkeypatch.setattr(PackedPath, "loss", all_logits)
    found, said = go(run_tiny, tmp_path, upcast(tiny_model()))
    assert "labelled_rows_head was not seen to run" in said
    assert said.count("speed-ups: step ") == 2, "both were traced"
    assert found[PRODUCTS]["presence"] == "found"
    assert said.count("warning: step") == 1
