"""Promise: a step that is not finite never reaches the weights, and its examples are named."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from dynotune.errors import TrainingError
from dynotune.plan.plan import Step
from dynotune.train.faults.limits import Limits
from dynotune.train.meter import StepRecord, WindowRecord
from dynotune.train.state import Progress
from dynotune.train.telling.journal import Journal
from tests.tiny import tiny_model

PATHS = pytest.mark.parametrize("execution", ["on", "off"])


def poisoned(step: int, execution: str = "on") -> Any:
    """A model whose hidden states are NaN in the first forward pass of one step of two documents."""
    model = tiny_model()
    a_step, calls = (2 if execution == "off" else 1), 0

    def poison(module: Any, args: Any, output: Any) -> Any:
        nonlocal calls
        if module.training and torch.is_grad_enabled():
            calls += 1
            if calls == a_step * (step - 1) + 1:
                return output * math.nan
        return output

    model.model.norm.register_forward_hook(poison)
    return model


@PATHS
def test_stop_names_the_examples_and_keeps_the_weights_clean(execution: str, run_tiny: Any, tmp_path: Any) -> None:
    model = poisoned(3, execution)
    with pytest.raises(TrainingError, match=r"(?s)Step 3 is not finite.*on_nonfinite_step: skip") as caught:
        run_tiny(model=model, logging_steps=2, train_sampling_strategy="sequential", packed_execution=execution)
    assert str(caught.value).count(":5") == 1  # rows 5 and 6 of the data
    assert str(caught.value).count(":6") == 1
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert '"nonfinite"' in (tmp_path / "run" / "metrics.jsonl").read_text()


@PATHS
def test_skip_leaves_the_step_out_and_goes_on(execution: str, run_tiny: Any) -> None:
    result = run_tiny(model=poisoned(3, execution), on_nonfinite_step="skip", packed_execution=execution)
    assert result.summary["skipped_steps"] == [3]
    assert [r["step"] for r in result.metrics if "loss" in r] == [1, 2, 4, 5, 6]
    assert all(math.isfinite(r["loss"]) for r in result.metrics if "loss" in r)
    assert all(torch.isfinite(p).all() for p in result.model.parameters())


def test_no_checkpoint_is_written_past_it(run_tiny: Any, tmp_path: Any) -> None:
    with pytest.raises(TrainingError, match="Step 3"):
        run_tiny(model=poisoned(3), save_strategy="steps", save_steps=2, logging_steps=100)
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-2"]


def test_a_step_is_checked_even_where_nothing_is_logged(run_tiny: Any) -> None:
    with pytest.raises(TrainingError, match="Step 3"):
        run_tiny(model=poisoned(3), logging_strategy="no")


def test_the_error_names_the_checkpoint_to_go_on_from(run_tiny: Any, tmp_path: Any) -> None:
    saves: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1, "overwrite_output_dir": True}
    with pytest.raises(TrainingError, match=r"Step 3.*(?s:.)*resume_from_checkpoint: .*step-2"):
        run_tiny(model=poisoned(3), **saves)
    with pytest.raises(TrainingError, match="No checkpoint before it can be resumed"):
        run_tiny(model=poisoned(3), save_only_model=True, **saves)
    with pytest.raises(TrainingError, match="No checkpoint before it can be resumed"):
        run_tiny(model=poisoned(1), **saves)


def test_speed_counts_the_time_of_skipped_steps_and_only_tokens_that_reached_the_weights() -> None:
    rows: list[dict[str, Any]] = []
    step = [Step(n, n / 4, np.array([0]), np.array([10]), [], real_tokens=10, label_tokens=5) for n in (1, 2, 3)]
    journal = Journal(
        (), Progress(), ["here"], torch.device("cpu"), Limits(3, 10), [rows.append]  # type: ignore[list-item]
    )  # fmt: skip
    journal.take(WindowRecord([StepRecord(step[0], 0.1, 2.0, 1.0, True, ())], seconds=1.0, log=False))
    journal.take(WindowRecord([StepRecord(step[1], 0.1, math.nan, 1.0, False, ())], seconds=3.0, log=True))
    journal.take(WindowRecord([], seconds=0.0, log=True))
    journal.take(WindowRecord([StepRecord(step[2], 0.1, 3.0, 1.0, True, ())], seconds=2.0, log=True))
    assert [(r["step"], r["epoch"]) for r in rows if "nonfinite" in r] == [(2, 0.5)]
    first, second = (r for r in rows if "loss" in r)
    assert (first["step"], first["tokens_per_second"], first["seconds_per_step"]) == (1, 10 / 4, 4 / 2)
    assert (second["step"], second["tokens_per_second"], second["seconds_per_step"]) == (3, 10 / 2, 2 / 1)
    assert (second["num_tokens"], second["train_seconds"]) == (20, 6.0)
