"""Promise: a run with step graphs takes the steps that it would have taken, is seen to have replayed them, and says how
many; what replaces kernels meanwhile makes them be captured again."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune.errors import ConfigError, TrainingError
from dynotune.model.step_graphs import Launched, StepGraphs
from dynotune.speedups.declared import step_graphs
from tests.tiny import chats


def losses(run_tiny: Any, tmp_path: Path, **settings: Any) -> list[float]:
    run_tiny(
        **{
            "rows": chats(32), "max_steps": 6, "per_device_train_batch_size": 8, "micro_batch_tokens": 128,
            "overwrite_output_dir": True, "use_peft": True, "lora_target_modules": "all-linear", "lora_r": 4,
            "lora_dropout": 0.0, "eval_strategy": "steps", "eval_steps": 3, "test_split_size": 4, **settings,
        }
    )  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    return [row[name] for row in rows for name in ("loss", "eval_loss", "grad_norm") if name in row]


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> list[StepGraphs]:
    """Step graphs where they cannot be captured, by launching: the ones that runs made."""
    made: list[StepGraphs] = []

    def install(self: Any, site: Any) -> Any:
        made.append(StepGraphs(site.model, Launched))
        return step_graphs.put_in(site, made[-1])

    monkeypatch.setattr(step_graphs.StepGraphsSpeedup, "applicable", lambda self, context: None)
    monkeypatch.setattr(step_graphs.StepGraphsSpeedup, "install", install)
    return made


def test_the_same_losses_engaged_and_its_replays_said(
    run_tiny: Any, tmp_path: Path, on_the_cpu: list[StepGraphs]
) -> None:
    right = losses(run_tiny, tmp_path, speedups={"step_graphs": "off"})
    console = Console(record=True, width=400)
    found = losses(run_tiny, tmp_path, speedups={"step_graphs": "on"}, console=console)
    assert found == pytest.approx(right, rel=1e-5)
    (graphs,) = on_the_cpu
    proof = json.loads((tmp_path / "run" / "engagement.json").read_text())
    verdicts = {name: seen["verdict"] for name, seen in proof["observations"].items()}
    assert verdicts["step_graphs"] == verdicts["fused_lora"] == verdicts["packed_execution"] == "engaged"
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert graphs.replayed["forward"] == graphs.replayed["backward"] > 0
    said = (
        f"{graphs.replayed['forward']:,} micro-batches replayed, {graphs.launched} launched besides those of the traced"
    )
    assert said in console.export_text()
    assert {shape.tokens for shape in graphs.shapes} <= {int(rung) for rung in plan["layout"]["ladder"]}


def test_graphs_that_cannot_be_made_stop_a_run_that_asked_for_them(
    run_tiny: Any, tmp_path: Path, on_the_cpu: list[StepGraphs], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*args: Any) -> None:
        raise RuntimeError("nothing may be captured today")

    monkeypatch.setattr("tests.train.test_step_graphs.Launched", cannot)
    with pytest.raises(TrainingError, match="nothing may be captured today"):
        losses(run_tiny, tmp_path, speedups={"step_graphs": "on"})


@pytest.mark.parametrize("case", ["one step", "too large"])
def test_without_a_fault_nothing_stops_and_nothing_is_remembered(
    run_tiny: Any, tmp_path: Path, on_the_cpu: list[StepGraphs], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    if case == "too large":
        monkeypatch.setattr(StepGraphs.__init__, "__defaults__", (8, None))
    for setting in ("on", "auto"):
        steps = 1 if case == "one step" else 3
        losses(
            run_tiny,
            tmp_path,
            speedups={"step_graphs": setting},
            max_steps=steps,
            eval_strategy="no",
            test_split_size=None,
        )
        seen = json.loads((tmp_path / "run" / "engagement.json").read_text())["observations"]["step_graphs"]
        assert seen["verdict"] == "unknown"
    assert len(on_the_cpu) == 2, "the second run tried it again"


class TurnsBad(Launched):
    """Not finite from some replay on."""

    replays = 0

    def forward(self) -> None:
        super().forward()
        TurnsBad.replays += 1
        if TurnsBad.replays > 12:
            self.hidden_TD.fill_(math.nan)


def test_a_replay_that_is_not_finite_is_the_culprit_and_nobody_else(
    run_tiny: Any, tmp_path: Path, on_the_cpu: list[StepGraphs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.train.test_step_graphs.Launched", TurnsBad)
    monkeypatch.setattr(TurnsBad, "replays", 0)
    with pytest.raises(TrainingError, match="launched one by one the step is finite"):
        losses(
            run_tiny, tmp_path, speedups={"step_graphs": "on"}, max_steps=12, eval_strategy="no", test_split_size=None
        )
    report = json.loads((tmp_path / "run" / "nonfinite.json").read_text())
    assert report["examinations"][0]["speedup"] == "step_graphs"


def test_there_are_none_without_a_gpu(run_tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no GPU"):
        losses(run_tiny, tmp_path, speedups={"step_graphs": "on"})


def test_what_was_captured_is_forgotten_when_a_kernel_is_taken_out() -> None:
    class Site:
        changes, layers = 1, None

    class Graphs:
        forgotten = 0

        def forget(self) -> None:
            self.forgotten += 1

        def hidden_states(self, model: Any, batch: Any) -> None:
            pass

    site, graphs = Site(), Graphs()
    step_graphs.put_in(site, graphs)  # type: ignore[arg-type]
    assert site.layers is not None
    site.layers(None, None)
    assert graphs.forgotten == 0
    site.changes += 1
    site.layers(None, None)
    site.layers(None, None)
    assert graphs.forgotten == 1
