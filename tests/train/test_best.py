"""Promise: the best evaluation and the end of patience are transformers'; what is not finite is never best."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import ReduceLROnPlateau
from transformers import EarlyStoppingCallback, TrainerControl, TrainerState

from dynotune.errors import ConfigError
from dynotune.train.best import BestTracker
from dynotune.train.state import Progress
from tests.tiny import chats


def tracker(**settings: Any) -> BestTracker:
    config: Any = SimpleNamespace(
        **{
            "metric_for_best_model": None,
            "greater_is_better": None,
            "early_stopping_patience": None,
            "early_stopping_threshold": 0.0,
            **settings,
        }
    )
    return BestTracker(config, Progress())


def run(best: BestTracker, values: list[float]) -> tuple[int | None, int | None]:
    """The best step, and the step at which patience ends."""
    for step, value in enumerate(values, start=1):
        best.progress.step = step
        best.update({best.metric: value})
        if best.out_of_patience:
            return best.progress.best_step, step
    return best.progress.best_step, None


def transformers_run(
    values: list[float], greater: bool, patience: int, threshold: float
) -> tuple[int | None, int | None]:
    """The same by transformers' callback, and by the comparison in its Trainer (after the callback, as there)."""
    args: Any = SimpleNamespace(metric_for_best_model="x", greater_is_better=greater)
    callback, state, control = EarlyStoppingCallback(patience, threshold), TrainerState(), TrainerControl()
    best_step = None
    for step, value in enumerate(values, start=1):
        callback.on_evaluate(args, state, control, metrics={"eval_x": value})
        if state.best_metric is None or (value > state.best_metric if greater else value < state.best_metric):
            state.best_metric, best_step = value, step
        if control.should_training_stop:
            return best_step, step
    return best_step, None


@given(
    st.lists(st.floats(-5, 5) | st.integers(-3, 3).map(float), min_size=1, max_size=20),
    st.booleans(),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_best_and_patience_are_those_of_transformers(
    values: list[float], greater: bool, patience: int, threshold: float
) -> None:
    ours = tracker(
        metric_for_best_model="x",
        greater_is_better=greater,
        early_stopping_patience=patience,
        early_stopping_threshold=threshold,
    )
    assert run(ours, values) == transformers_run(values, greater, patience, threshold)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_never_best(bad: float) -> None:
    assert run(tracker(), [bad, 3.0, bad, 2.0]) == (4, None)
    assert run(tracker(), [bad, bad]) == (None, None)
    assert run(tracker(early_stopping_patience=2), [bad, 3.0, bad, bad]) == (2, 4)
    assert run(tracker(early_stopping_patience=2), [bad, bad]) == (None, 2)


@pytest.mark.parametrize(
    ("name", "metric", "greater"),
    [
        (None, "eval_loss", False),
        ("loss", "eval_loss", False),
        ("eval_a_loss", "eval_a_loss", False),
        ("mean_token_accuracy", "eval_mean_token_accuracy", True),
    ],
)
def test_names_and_directions_are_transformers(name: str | None, metric: str, greater: bool) -> None:
    best = tracker(metric_for_best_model=name)
    assert (best.metric, best.greater_is_better) == (metric, greater)


PLATEAU = {"lr_scheduler_type": "reduce_lr_on_plateau"}
SETS = {"a": chats(2, 5), "b": chats(2, 6)}


@pytest.mark.parametrize(
    ("held_out", "settings", "says"),
    [
        (SETS["a"], {"metric_for_best_model": "los", "early_stopping_patience": 2}, "eval_los.*eval_loss"),
        (SETS["a"], {"metric_for_best_model": "los", **PLATEAU}, "eval_los.*eval_loss"),
        (SETS, {"early_stopping_patience": 2}, "eval_a_loss.*eval_b_loss"),
        (SETS, PLATEAU, "eval_a_loss.*eval_b_loss"),
        (SETS["a"], {"metric_for_best_model": "mean_token_accuracy", **PLATEAU}, "larger is better.*mode: max"),
        (SETS["a"], {"lr_scheduler_type": "greedy"}, "greedy.*reduce_lr_on_plateau"),
    ],
)
def test_a_watched_metric_is_checked_before_the_first_step(
    held_out: Any, settings: dict[str, Any], says: str, run_tiny: Any, tmp_path: Any
) -> None:
    with pytest.raises(ConfigError, match=rf"(?s){says}"):
        run_tiny(eval_dataset=held_out, eval_strategy="steps", eval_steps=3, **settings)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("watched", [None, "entropy"])
def test_a_plateau_schedule_watches_the_metric_that_was_named(
    watched: str | None, run_tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    step = ReduceLROnPlateau.step

    def record(self: ReduceLROnPlateau, value: float) -> None:
        seen.append(value)
        step(self, value)

    monkeypatch.setattr(ReduceLROnPlateau, "step", record)
    result = run_tiny(
        eval_dataset=chats(4, 8), eval_strategy="steps", eval_steps=2, metric_for_best_model=watched,
        greater_is_better=False if watched else None, **PLATEAU,
    )  # fmt: skip
    key = f"eval_{watched or 'loss'}"
    assert seen == [row[key] for row in result.metrics if key in row]
    assert len(seen) == 3
