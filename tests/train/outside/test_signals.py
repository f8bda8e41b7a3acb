"""Promise: a signal costs nothing. The step is finished and saved, and the run that goes on is the run that was left."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from rich.console import Console
from transformers import TrainerCallback

from dynotune.errors import RESUMABLE, Interrupted
from dynotune.train.outside import signals
from dynotune.train.outside.signals import HEARD, StoppedError, listening
from tests.tiny import chats

EVERYTHING = {"max_steps": 8, "save_strategy": "steps", "save_steps": 3, "logging_steps": 3, "lora_dropout": 0.2}
EVERYTHING |= {"use_peft": True, "lora_r": 4, "lora_target_modules": "all-linear"}

AFTER = {"step_begin": 4, "pre_optimizer_step": 5}
"""The step after which the run is left, where that is not 3: the loop looks once a step, before the update."""


@pytest.fixture(autouse=True)
def _handlers_are_put_back() -> Iterator[None]:
    """Of a process that ignores none of them: a shell hands down an ignored SIGINT to what it starts in the background."""
    of_the_tests = {one: signal.signal(one, signal.SIG_DFL) for one in HEARD}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = [signal.getsignal(one) for one in HEARD]
    try:
        yield
        assert [signal.getsignal(one) for one in HEARD] == before
    finally:
        for one, handler in of_the_tests.items():
            signal.signal(one, handler)


class Send(TrainerCallback):
    """Sends signals to this process: at an event, once, when so many steps are done."""

    def __init__(self, event: str, step: int, *signals: int) -> None:
        self.step, self.signals = step, list(signals)
        setattr(self, f"on_{event}", self._on)

    def _on(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            while self.signals:
                os.kill(os.getpid(), self.signals.pop(0))


def rows(run: Path) -> list[tuple[Any, ...]]:
    """What metrics.jsonl says of updates and evaluations, without times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    keys = ("step", "loss", "grad_norm", "learning_rate", "num_tokens", "label_tokens", "eval_loss")
    return [tuple(line.get(key) for key in keys) for line in lines]


def same_weights(run: Path, other: Path) -> bool:
    name = "adapter/adapter_model.safetensors"
    return (run / name).read_bytes() == (other / name).read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("event", ["step_begin", "pre_optimizer_step", "step_end", "save", "log"])
def test_the_run_that_goes_on_is_the_run_that_was_left(run_tiny: Any, tmp_path: Path, number: int, event: str) -> None:
    run_tiny(output_dir=str(tmp_path / "whole"), **EVERYTHING)
    console = Console(record=True, width=500, file=(tmp_path / "said").open("w"))
    with pytest.raises(Interrupted) as left:
        run_tiny(callbacks=[Send(event, 3, number)], console=console, **EVERYTHING)
    assert left.value.code == RESUMABLE
    assert left.value.step == left.value.result.steps == AFTER.get(event, 3)
    assert left.value.checkpoint.is_dir()
    said = console.export_text()
    assert f"{signal.Signals(number).name}: left after step {left.value.step} of 8, saved as" in said
    assert "--resume_from_checkpoint true" in said
    assert not (tmp_path / "run" / "adapter").exists()  # nothing that could be taken for the result
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["interrupted"]["step"] == left.value.step
    run_tiny(resume_from_checkpoint=True, **EVERYTHING)
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert same_weights(tmp_path / "run", tmp_path / "whole")
    assert "interrupted" not in json.loads((tmp_path / "run" / "summary.json").read_text())


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_way_on_is_one_that_is_taken(run_tiny: Any, overwrite: bool) -> None:
    """The same command with `overwrite_output_dir` is refused beside a resume."""
    with pytest.raises(Interrupted, match="--resume_from_checkpoint true`") as left:
        run_tiny(callbacks=[Send("step_end", 2, signal.SIGTERM)], overwrite_output_dir=overwrite)
    assert str(left.value).endswith(", without `overwrite_output_dir`") == overwrite


def test_without_checkpoints_one_is_saved_all_the_same(run_tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(Interrupted) as left:
        run_tiny(callbacks=[Send("step_end", 2, signal.SIGTERM)], max_steps=6)
    assert left.value.checkpoint == tmp_path / "run" / "checkpoints" / f"step-{left.value.step}"
    assert run_tiny(max_steps=6, resume_from_checkpoint=True).steps == 6


def test_an_echo_is_no_second_signal(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C reaches the whole group, and `uv run`, `torchrun` and others pass it on once more."""
    monkeypatch.setattr(signals, "ECHO", 600.0)
    with pytest.raises(Interrupted):
        run_tiny(callbacks=[Send("pre_optimizer_step", 4, signal.SIGINT, signal.SIGINT)], **EVERYTHING)


def test_once_more_leaves_at_once(run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "ECHO", 0.0)
    with pytest.raises(StoppedError, match="step-3, 1 step back; go on with") as stopped:
        run_tiny(callbacks=[Send("pre_optimizer_step", 4, signal.SIGTERM, signal.SIGINT)], **EVERYTHING)
    assert stopped.value.number == signal.SIGINT
    with FileLock(tmp_path / "run" / ".lock").acquire(timeout=0):
        pass  # let go
    assert run_tiny(resume_from_checkpoint=True, **EVERYTHING).steps == 8


def test_sigusr1_saves_and_goes_on(run_tiny: Any, tmp_path: Path) -> None:
    run_tiny(callbacks=[Send("step_begin", 1, signal.SIGUSR1)], max_steps=6)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-2"]


def test_sigusr1_before_the_first_step_is_not_forgotten(run_tiny: Any, tmp_path: Path) -> None:
    console = Console(record=True, width=500, file=(tmp_path / "said").open("w"))
    run_tiny(callbacks=[Send("init_end", 0, signal.SIGUSR1)], console=console, max_steps=4)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-1"]
    assert "SIGUSR1: noted; there is no step to save yet" in console.export_text()


@pytest.mark.parametrize("event", ["init_end", "train_begin", "train_end"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_the_first_step_and_after_the_last_it_ends_at_once(
    run_tiny: Any, tmp_path: Path, event: str, number: int
) -> None:
    at = 6 if event == "train_end" else 0
    with pytest.raises(StoppedError) as stopped:
        run_tiny(callbacks=[Send(event, at, number)], save_strategy="steps", save_steps=4)
    assert stopped.value.number == number
    assert ("step-6; go on" if at else "nothing was saved") in str(stopped.value)
    with FileLock(tmp_path / "run" / ".lock").acquire(timeout=0):
        pass


def test_an_evaluation_is_left_and_made_up_for(run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "ECHO", 0.0)
    settings = {**EVERYTHING, "eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True}
    settings |= {"save_steps": 2, "metric_for_best_model": "loss", "micro_batch_tokens": 64}
    held_out = chats(8, seed=5)
    run_tiny(output_dir=str(tmp_path / "whole"), eval_dataset=held_out, **settings)
    seen: list[int] = []

    class Watch(TrainerCallback):
        def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seen.append(state.global_step)

    send = Send("prediction_step", 4, signal.SIGTERM)
    with pytest.raises(Interrupted) as left:
        run_tiny(callbacks=[send, Watch()], eval_dataset=held_out, **settings)
    assert left.value.step == 4
    assert seen.count(4) == 1 < seen.count(2)  # negative control: an evaluation has more than one micro-batch
    assert [row[0] for row in rows(tmp_path / "run") if row[-1] is not None] == [2]
    # Killed after the evaluation that was made up for, the run makes it again and does not list it twice.
    stop = Send("step_begin", 4, signal.SIGTERM, signal.SIGTERM)
    with pytest.raises(StoppedError):
        run_tiny(callbacks=[stop], eval_dataset=held_out, resume_from_checkpoint=True, **settings)
    run_tiny(eval_dataset=held_out, resume_from_checkpoint=True, **settings)
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert same_weights(tmp_path / "run", tmp_path / "whole")


def test_the_result_that_is_being_written_is_finished_first(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dynotune.train.folder import finish

    write: Callable[..., None] = finish.save_model

    def interrupted(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        write(*arguments)

    monkeypatch.setattr(finish, "save_model", interrupted)
    with pytest.raises(StoppedError, match="the run is complete: "):
        run_tiny(**EVERYTHING)
    assert (tmp_path / "run" / "adapter" / "adapter_model.safetensors").is_file()


def test_handlers_of_the_users_own_are_called_when_the_state_is_safe(run_tiny: Any, tmp_path: Path) -> None:
    called: list[tuple[int, list[str]]] = []

    def mine(number: int, frame: Any) -> None:
        called.append((number, sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))))

    before = {one: signal.signal(one, mine) for one in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        send = [Send("step_begin", 1, signal.SIGUSR1), Send("step_begin", 4, signal.SIGTERM)]
        with pytest.raises(Interrupted):
            run_tiny(callbacks=send, max_steps=6)
        assert called == [(signal.SIGUSR1, ["step-2"]), (signal.SIGTERM, ["step-2", "step-5"])]
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def test_an_ignored_signal_stays_ignored(run_tiny: Any) -> None:
    """A shell starts what runs in the background so."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run_tiny(callbacks=[Send("step_begin", 1, signal.SIGINT)], max_steps=4).steps == 4
    finally:
        signal.signal(signal.SIGINT, before)


def test_handlers_are_put_back_after_an_error(run_tiny: Any) -> None:
    class Fails(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        run_tiny(callbacks=[Fails()])


def test_another_thread_trains_without_hearing(run_tiny: Any) -> None:
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(run_tiny(max_steps=2)))
    thread.start()
    thread.join()
    assert done[0].steps == 2


def test_what_was_heard_before_the_run_is_not_lost(run_tiny: Any, tmp_path: Path) -> None:
    """As on the command line, which listens before PyTorch is loaded."""
    with listening():
        os.kill(os.getpid(), signal.SIGUSR1)
        run_tiny(max_steps=2)
        torch.manual_seed(0)
        assert (tmp_path / "run" / "checkpoints" / "step-1").is_dir()


def test_a_run_whose_last_evaluation_was_left_is_not_done(run_tiny: Any, tmp_path: Path) -> None:
    """Which model is the best one is known behind that evaluation: without it, a worse one would be the result."""
    held_out = chats(3, seed=5)
    settings = EVERYTHING | {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "load_best_model_at_end": True}
    whole = run_tiny(output_dir=str(tmp_path / "whole"), eval_dataset=held_out, **settings)
    assert whole.summary["best_step"] == 8
    console = Console(record=True, width=500, file=(tmp_path / "said").open("w"))
    with pytest.raises(Interrupted) as left:
        run_tiny(
            callbacks=[Send("step_begin", 7, signal.SIGTERM)],
            eval_dataset=held_out, console=console, **settings,
        )  # fmt: skip
    assert left.value.step == 8
    assert console.export_text().count("the evaluation of step 8 is left") == 1
    assert not (tmp_path / "run" / "adapter").exists()
    resumed = run_tiny(resume_from_checkpoint=True, eval_dataset=held_out, **settings)
    assert resumed.summary["best_step"] == 8
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert same_weights(tmp_path / "run", tmp_path / "whole")


def test_a_run_that_was_left_in_an_evaluation_says_why(run_tiny: Any, tmp_path: Path) -> None:
    settings = {"eval_strategy": "steps", "eval_steps": 2, "eval_dataset": chats(3, seed=5)}
    with pytest.raises(Interrupted, match=r"^SIGTERM: left after step 4") as left:
        run_tiny(callbacks=[Send("prediction_step", 4, signal.SIGTERM)], **settings)
    assert left.value.why == "SIGTERM"
