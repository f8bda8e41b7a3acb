"""Promise: a step that is not finite never reaches the weights, and its examples are named."""

import math
from typing import Any

import pytest
import torch

from dynotune.errors import TrainingError
from tests.tiny import tiny_model


def poisoned(at_call: int) -> Any:
    """A model whose logits are NaN at one forward pass."""
    model = tiny_model()
    calls = 0

    def poison(module: Any, args: Any, output: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at_call and module.training:
            output.logits = output.logits * math.nan
        return output

    model.register_forward_hook(poison)
    return model


def test_stop_names_the_examples_and_keeps_the_weights_clean(run_tiny: Any, tmp_path: Any) -> None:
    model = poisoned(at_call=5)  # two documents a step: the first of step 3
    with pytest.raises(TrainingError, match=r"(?s)Step 3 is not finite.*on_nonfinite_step: skip") as caught:
        run_tiny(model=model, logging_steps=2, train_sampling_strategy="sequential")
    assert str(caught.value).count(":5") == 1  # rows 5 and 6 of the data
    assert str(caught.value).count(":6") == 1
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert '"nonfinite"' in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_skip_leaves_the_step_out_and_goes_on(run_tiny: Any) -> None:
    result = run_tiny(model=poisoned(at_call=5), on_nonfinite_step="skip")
    assert result.summary["skipped_steps"] == [3]
    assert [r["step"] for r in result.metrics if "loss" in r] == [1, 2, 4, 5, 6]
    assert all(math.isfinite(r["loss"]) for r in result.metrics if "loss" in r)
    assert all(torch.isfinite(p).all() for p in result.model.parameters())


def test_no_checkpoint_is_written_past_it(run_tiny: Any, tmp_path: Any) -> None:
    with pytest.raises(TrainingError, match="Step 3"):
        run_tiny(model=poisoned(at_call=5), save_strategy="steps", save_steps=2, logging_steps=100)
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-2"]


def test_a_step_is_checked_even_where_nothing_is_logged(run_tiny: Any) -> None:
    with pytest.raises(TrainingError, match="Step 3"):
        run_tiny(model=poisoned(at_call=5), logging_strategy="no")
