"""Promise: transformers' callbacks run unchanged: they see the same events and their requests are carried out."""

from typing import Any

import pytest
from transformers import TrainerCallback

from dynotune.errors import ConfigError
from tests.tiny import chats


class Recorder(TrainerCallback):
    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        assert more["model"].training
        assert more["processing_class"].chat_template
        assert args.learning_rate == 1e-2
        self.seen.append(("begin", state.global_step))

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.seen.append(("step", state.global_step))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        self.seen.append(("log", state.global_step))
        assert "loss" in logs or "eval_loss" in logs

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **more: Any) -> None:
        assert metrics["eval_loss"] > 0
        self.seen.append(("evaluate", state.global_step))

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.seen.append(("save", state.global_step))

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.seen.append(("end", state.global_step))


class Asks(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        control.should_save = state.global_step == 2
        control.should_evaluate = state.global_step == 3
        control.should_training_stop = state.global_step == 4


def test_events_and_requests(run_tiny: Any) -> None:
    recorder = Recorder()
    result = run_tiny(callbacks=[recorder, Asks()], eval_dataset=chats(2, 4))
    assert result.steps == 4
    assert [s for s in recorder.seen if s[0] in ("save", "evaluate")] == [("save", 2), ("evaluate", 3)]
    assert [s for s in recorder.seen if s[0] == "step"] == [("step", i) for i in (1, 2, 3, 4)]
    assert recorder.seen[0] == ("begin", 0)
    assert recorder.seen[-1] == ("end", 4)
    assert [s[1] for s in recorder.seen if s[0] == "log"] == [1, 2, 3, 3, 4]


def test_what_is_no_callback_is_an_error(run_tiny: Any) -> None:
    with pytest.raises(ConfigError, match=r"print.*TrainerCallback"):
        run_tiny(callbacks=[print])
