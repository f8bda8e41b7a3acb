"""Promise: logs, evaluations and checkpoints come at the steps where transformers makes them."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from transformers import TrainerControl, TrainerState
from transformers.trainer_callback import DefaultFlowCallback

from dynotune.train.cadence import Every, cadences

WHAT = ("log", "evaluate", "save")
numbers = st.one_of(st.integers(1, 12).map(float), st.floats(0.01, 0.99))
settings = st.fixed_dictionaries(
    {
        "logging_strategy": st.sampled_from(["no", "steps", "epoch"]),
        "logging_steps": numbers,
        "logging_first_step": st.booleans(),
        "eval_strategy": st.sampled_from(["no", "steps", "epoch"]),
        "eval_steps": st.one_of(st.none(), numbers),
        "eval_delay": st.one_of(st.just(0), st.integers(0, 20), st.floats(0, 4)),
        "save_strategy": st.sampled_from(["no", "steps", "epoch", "best"]),
        "save_steps": numbers,
    }
)


def flow(config: dict[str, Any], steps_per_epoch: int, total: int) -> list[tuple[int, str, tuple[bool, ...]]]:
    """What transformers asks for, at step ends and epoch ends."""
    # TrainingArguments takes `logging_steps` where `eval_steps` is not given.
    args: Any = SimpleNamespace(**{**config, "eval_steps": config["eval_steps"] or config["logging_steps"]})
    state, callback, seen = TrainerState(max_steps=total), DefaultFlowCallback(), []
    state.compute_steps(args, total)
    for step in range(1, total + 1):
        state.global_step, state.epoch = step, step / steps_per_epoch
        for event in ("step_end", "epoch_end"):
            if event == "epoch_end" and step % steps_per_epoch and step != total:
                continue
            control = getattr(callback, f"on_{event}")(args, state, TrainerControl())
            seen.append((step, event, tuple(bool(getattr(control, f"should_{what}")) for what in WHAT)))
    return seen


def ours(config: dict[str, Any], steps_per_epoch: int, total: int) -> list[tuple[int, str, tuple[bool, ...]]]:
    topic: Any = SimpleNamespace(**config)
    every = cadences(topic, topic, topic, steps_per_epoch, total)
    seen = []
    for step in range(1, total + 1):
        seen.append((step, "step_end", tuple(e.due(step) for e in every)))
        if step % steps_per_epoch == 0 or step == total:
            seen.append((step, "epoch_end", tuple(e.due_at_epoch_end(step) for e in every)))
    return seen


@given(settings, st.integers(1, 9), st.integers(1, 30))
def test_due_where_transformers_asks(config: dict[str, Any], steps_per_epoch: int, total: int) -> None:
    assert ours(config, steps_per_epoch, total) == flow(config, steps_per_epoch, total)


def test_the_last_step_is_evaluated_and_saved() -> None:
    config = {
        "logging_strategy": "steps", "logging_steps": 2, "logging_first_step": False, "eval_strategy": "steps",
        "eval_steps": 2, "eval_delay": 0, "save_strategy": "steps", "save_steps": 2,
    }  # fmt: skip
    topic: Any = SimpleNamespace(**config)
    _, evaluate, save = cadences(topic, topic, topic, 10, 5)
    assert [n for n in range(1, 6) if evaluate.due(n)] == [n for n in range(1, 6) if save.due(n)] == [2, 4, 5]


def test_the_comparison_can_fail() -> None:
    """Negative control: without its last step, `steps` is not what transformers does."""
    every = Every("steps", 2, 10, 5, last=False)
    assert [n for n in range(1, 6) if every.due(n)] == [2, 4]
