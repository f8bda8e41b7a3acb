"""Promise: a run's figures are sums over sums of the same steps, say what they are a share of, and survive a resume."""

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from transformers import TrainerCallback

from dynotune.execution import feed
from dynotune.execution.feed import Documents
from dynotune.measure import clock
from dynotune.measure.totals import Totals
from dynotune.measure.words import DEFINITIONS
from dynotune.report.speed import speed_sentence
from dynotune.train import meter
from dynotune.train.state import Progress
from dynotune.train.telling import journal as journal_module
from tests.tiny import chats, tiny_model
from tests.told_time import told_time
from tests.train.checkpoints.sealing import reseal


def test_mixed_steps(run_tiny: Any) -> None:
    """open-instruct subtracts one step's duration from another's wall clock. Here a row's tokens, FLOPs and seconds are of
    the same steps, and all rows together are the run."""
    result = run_tiny(max_steps=9, logging_steps=2, device_peak_tflops=1.0)
    rows = [row for row in result.metrics if "loss" in row]
    assert [row["step"] for row in rows] == [2, 4, 6, 8, 9]
    seconds = [b - a for a, b in pairwise([0.0, *(row["train_seconds"] for row in rows)])]
    # Of each example's tokens all but the last are computed.
    tokens = [b - a for a, b in pairwise([0, *(row["num_tokens"] - row["num_examples"] for row in rows)])]
    for row, s, t in zip(rows, seconds, tokens, strict=True):
        assert row["tokens_per_second"] * s == pytest.approx(t)
        assert 0 < row["mfu"] <= row["hfu"]
    whole = result.summary
    assert sum(tokens) == whole["real_tokens"] == pytest.approx(whole["tokens_per_second"] * sum(seconds))
    assert whole["mfu"] == pytest.approx(
        sum(row["mfu"] * s for row, s in zip(rows, seconds, strict=True)) / sum(seconds)
    )


def test_an_average_divided_by_the_absolute_step_number_after_a_resume(run_tiny: Any, tmp_path: Any) -> None:
    """open-instruct's `mfu_avg` after a resume at step 1,000 is out by 1,000 steps. Here sums go on over sums."""
    settings = {"save_strategy": "steps", "save_steps": 4, "device_peak_tflops": 1.0}
    run_tiny(max_steps=4, **settings)
    resumed = run_tiny(max_steps=6, resume_from_checkpoint=True, **settings).summary
    assert (resumed["steps"], resumed["measured_steps"]) == (6, 6)
    assert resumed["tokens_per_second"] * resumed["train_seconds"] == pytest.approx(resumed["real_tokens"])
    whole = run_tiny(max_steps=6, output_dir=str(tmp_path / "whole"), **settings).summary
    assert resumed["real_tokens"] == whole["real_tokens"]
    # The work is the same to the FLOP; only the seconds are others.
    work = [s["mfu"] * s["train_seconds"] for s in (resumed, whole)]
    assert work[0] == pytest.approx(work[1], rel=1e-9)


def test_timer_holes(run_tiny: Any) -> None:
    """NeMo RL's DPO computes reference log-probabilities outside of its step time. Here what a callback or a slow batch
    costs between two steps is in the window, wherever in the loop it happens."""

    class Slow(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            time.sleep(0.02)

        def on_step_end(self, *_: Any, **__: Any) -> None:
            time.sleep(0.02)

        def on_optimizer_step(self, *_: Any, **__: Any) -> None:
            time.sleep(0.01)

    result = run_tiny(max_steps=6, logging_steps=2, callbacks=[Slow()])
    assert result.summary["train_seconds"] > 6 * 0.05
    assert all(row["seconds_per_step"] > 0.05 for row in result.metrics if "loss" in row)


def test_every_result_says_under_which_definitions_it_was_measured(run_tiny: Any) -> None:
    result = run_tiny(max_steps=2, eval_dataset=chats(2), eval_strategy="steps", eval_steps=1)
    assert len(result.metrics) == 4
    assert all(row["definitions"] == DEFINITIONS for row in result.metrics)
    assert json.loads((result.folder / "summary.json").read_text())["definitions"] == DEFINITIONS


def test_without_a_peak_there_is_no_mfu_and_a_reason(run_tiny: Any, tmp_path: Path) -> None:
    console = Console(record=True, width=300, file=(tmp_path / "out").open("w"))
    result = run_tiny(max_steps=2, console=console)
    assert not any(key in row for row in [*result.metrics, result.summary] for key in ("mfu", "hfu", "peak_tflops"))
    assert "CPU" in result.summary["no_mfu"]
    shown = console.export_text()
    fill = f"fill {100 * result.summary['fill']:.1f} %"
    assert f"{result.summary['tokens_per_second']:,.0f} real tokens/s; {fill}; no MFU: a CPU" in shown


def test_a_users_own_peak_is_labelled_everywhere(run_tiny: Any, tmp_path: Path) -> None:
    console = Console(record=True, width=300, file=(tmp_path / "out").open("w"))
    result = run_tiny(max_steps=2, device_peak_tflops=2.5, console=console)
    assert result.summary["peak_tflops"] == 2.5
    card = (result.folder / "README.md").read_text()
    for text in (result.summary["peak_source"], console.export_text(), card):
        assert "given by you as `device_peak_tflops`" in text
    assert f"| MFU | {100 * result.summary['mfu']:.1f} % |" in card
    assert f"| fill | {100 * result.summary['fill']:.1f} % |" in card


def test_more_than_the_peak_is_called_impossible(run_tiny: Any) -> None:
    """OLMo-core once printed 105.7 %: no such number goes out unremarked."""
    result = run_tiny(max_steps=2, device_peak_tflops=1e-9)
    assert result.summary["mfu"] > 1
    assert "is impossible" in speed_sentence(result.summary)
    possible = run_tiny(max_steps=2, device_peak_tflops=1.0, overwrite_output_dir=True).summary
    assert "is impossible" not in speed_sentence(possible)


def test_a_model_that_is_not_understood_trains_and_has_no_mfu(run_tiny: Any) -> None:
    import torch

    model = tiny_model()
    model.model.layers[0].mlp.secret = torch.nn.Parameter(torch.zeros(3, 5))
    result = run_tiny(max_steps=2, model=model, device_peak_tflops=1.0)
    assert "mfu" not in result.summary
    assert "layers.0.mlp.secret" in result.summary["no_mfu"]


def test_steady_figures_leave_out_each_processs_first_steps(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "WARM_UP_STEPS", 3)

    class SlowStart(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step < 3:
                time.sleep(0.2)

    # Whoever else uses the machine may slow any other step as much.
    told = told_time(monkeypatch, clock, meter)
    monkeypatch.setattr(time, "sleep", told.sleep)
    result = run_tiny(max_steps=8, logging_steps=2, callbacks=[SlowStart()], device_peak_tflops=1.0)
    figures, rows = result.summary, {row["step"]: row for row in result.metrics}
    # Rows end at 2, 4, 6, 8: the third step lies in the second, so that one is left out in whole.
    assert figures["steady_steps"] == 4
    tokens = sum(sign * (rows[n]["num_tokens"] - rows[n]["num_examples"]) for sign, n in ((1, 8), (-1, 4)))  # computed
    seconds = figures["train_seconds"] - rows[4]["train_seconds"]  # the window behind the last row among them
    assert figures["steady_tokens_per_second"] == pytest.approx(tokens / seconds)
    work = sum(rows[n]["mfu"] * (rows[n]["train_seconds"] - rows[n - 2]["train_seconds"]) for n in (6, 8))
    assert figures["steady_mfu"] == pytest.approx(work / seconds)
    assert figures["steady_tokens_per_second"] > figures["tokens_per_second"]
    assert "without the first steps" in speed_sentence(figures)
    short = run_tiny(max_steps=3, overwrite_output_dir=True).summary
    assert not any(key.startswith("steady") for key in short)


def without_new_counters(progress: dict[str, Any]) -> None:
    del progress["totals"], progress["steady"]


def of_other_definitions(progress: dict[str, Any]) -> None:
    for name in ("totals", "steady"):
        progress[name]["definitions"] = DEFINITIONS - 1


@pytest.mark.parametrize("age", [without_new_counters, of_other_definitions])
def test_a_checkpoint_without_the_counters_is_resumed_and_its_part_is_not_guessed(
    age: Any, run_tiny: Any, tmp_path: Path
) -> None:
    settings = {"save_strategy": "steps", "save_steps": 4, "device_peak_tflops": 1.0}
    run_tiny(max_steps=4, **settings)
    path = tmp_path / "run" / "checkpoints" / "step-4" / "state.json"
    state = json.loads(path.read_text())
    age(state["progress"])
    path.write_text(json.dumps(state))
    reseal(path.parent)
    result = run_tiny(max_steps=6, resume_from_checkpoint=True, **settings)
    figures = result.summary
    assert (figures["steps"], figures["measured_steps"]) == (6, 2)
    then = state["progress"]
    rate = figures["real_tokens"] / (figures["train_seconds"] - then["train_seconds"])
    assert figures["tokens_per_second"] == pytest.approx(rate)
    assert figures["real_tokens"] < figures["num_tokens"] - then["tokens"] < figures["num_tokens"]
    assert 0 < figures["mfu"] < 1
    assert "over the last 2 steps" in speed_sentence(figures)


def test_counters_that_are_damaged_are_not_taken() -> None:
    assert Progress(totals={"definitions": DEFINITIONS, "steps": 3}).totals == Totals(steps=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Progress(totals={"definitions": DEFINITIONS, "stepz": 3})  # type: ignore[arg-type]


def test_the_summary_says_how_long_the_loop_waited_for_data(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    at: Any = Documents.at

    def slowly(self: Documents, rows: Any) -> Any:
        time.sleep(0.3)
        return at(self, rows)

    told = told_time(monkeypatch, clock, feed, meter)
    monkeypatch.setattr(time, "sleep", told.sleep)
    prompt = run_tiny(speedups={"prefetch": "off"}).summary["data_wait_seconds"]
    monkeypatch.setattr(Documents, "at", slowly)
    waited = run_tiny(speedups={"prefetch": "off"}, overwrite_output_dir=True).summary
    assert prompt < 6 * 0.3 <= waited["data_wait_seconds"] <= waited["train_seconds"]
