"""Promise: the hooks of an optimizer take a script through warming up, timed and traced steps, and leave nothing behind."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from dynotune.profile.analysis.placement import placement
from dynotune.profile.foreign.as_record import record_of
from dynotune.profile.foreign.inside.begin import FirstStep
from dynotune.profile.foreign.protocol import Asked, events, observed


class Script:
    """A loop in this process, whose optimizer has the hooks."""

    def __init__(self, folder: Path, asked: Asked) -> None:
        self.model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.folder, self.first = folder, FirstStep(folder, asked)
        self.optimizer.register_step_pre_hook(self.first.before_update)
        self.optimizer.register_step_post_hook(self.first.after_update)
        self.steps = 0

    def run(self, steps: int, loader: bool = True) -> None:
        rows = [torch.arange(8)] * (2 * steps)
        for ids in DataLoader(rows, batch_size=2) if loader else (torch.stack(rows[:2]) for _ in range(steps)):
            self.model(ids).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.steps += 1

    def seen(self) -> dict[str, Any]:
        (found,) = observed(self.folder)
        return found


@pytest.mark.parametrize("loader", [True, False])
def test_from_the_first_step_to_the_stop(loader: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = torch.autograd.backward, _BaseDataLoaderIter.__next__
    script = Script(tmp_path, Asked(steps=3, warm_up=2, traced=2))
    with pytest.raises(SystemExit) as raised:
        script.run(30, loader)
    assert raised.value.code == 0
    assert "stopped on purpose after 8 optimizer steps" in capsys.readouterr().err
    assert script.steps == 8  # one to look around, two of warming up, three timed, two traced
    found = script.seen()
    assert [one["number"] for one in found["timed"]] == [4, 5, 6]
    assert [one["number"] for one in found["traced"]] == [8]
    assert found["foreign"]["ended"] == "steps"
    assert (torch.autograd.backward, _BaseDataLoaderIter.__next__) == before
    assert not any(one._forward_pre_hooks or one._forward_hooks for one in script.model.modules())
    assert not any("forward" in one.__dict__ for one in script.model.modules())
    assert [one["event"] for one in events(tmp_path)] == ["step", "observed", "stopped"]


@pytest.mark.parametrize("mode", [True, False])
def test_a_model_that_nobody_put_into_training_mode_is_watched_alike(mode: bool, tmp_path: Path) -> None:
    """`from_pretrained` returns one in evaluation mode. It is said: its dropout is off."""
    script = Script(tmp_path, Asked(steps=3, warm_up=2, traced=1, stop=False))
    script.model.train(mode)
    script.run(10)
    found = script.seen()
    assert [one["processed_tokens"] for one in found["timed"]] == [16, 16, 16]
    assert all(one["data_wait"] is not None for one in found["timed"])
    assert found["environment"]["loader_workers"] == 0
    assert found["foreign"]["forward"] > 0
    assert found["model"]["evaluation_mode"] is not mode
    said = placement(record_of(["python", "script.py"], [found], []))
    assert any("trains in evaluation mode" in line for line in said) is not mode


@pytest.mark.parametrize("gradients", [True, False])
def test_evaluations_are_no_training_in_either_mode(gradients: bool, tmp_path: Path) -> None:
    """gradients: a script that evaluates without turning them off, and trains in training mode. Else one that does turn
    them off, and never leaves evaluation mode."""
    script = Script(tmp_path, Asked(steps=3, warm_up=2, traced=0, stop=False))
    for _ in range(8):
        script.model.train(gradients)
        script.run(1)
        script.model.eval()
        with torch.set_grad_enabled(gradients):
            for ids in DataLoader([torch.arange(8)] * 4, batch_size=2):
                script.model(ids)
    found = script.seen()
    assert [one["processed_tokens"] for one in found["timed"]] == [16, 16, 16]
    assert found["foreign"]["calls_without_gradient"] == 0


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    """Two batches of two, each of which takes 40 ms."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.02)
        return torch.arange(8)


@pytest.mark.parametrize("evaluates", [True, False])
def test_batches_of_an_evaluation_are_not_waited_for_in_training(evaluates: bool, tmp_path: Path) -> None:
    """Of a model in evaluation mode, whose gradients are turned off behind the loader: only the call tells. The control
    trains with the same batches."""
    script = Script(tmp_path, Asked(steps=3, warm_up=2, traced=0, stop=False))
    script.model.eval()
    for _ in range(8):
        script.run(1)
        for ids in DataLoader(Slow(), batch_size=2):
            with torch.set_grad_enabled(not evaluates):
                made = script.model(ids)
            if not evaluates:
                made.square().mean().backward()
    waits = [one["data_wait"] for one in script.seen()["timed"]]
    assert (max(waits) < 0.04, min(waits) >= 0.08) == (evaluates, not evaluates)


def test_waits_are_known_where_no_call_of_a_model_in_evaluation_mode_is_seen(tmp_path: Path) -> None:
    """As where the script compiles the function that calls it."""
    script = Script(tmp_path, Asked(steps=3, warm_up=2, traced=0, stop=False))
    script.model.eval()
    for _ in range(8):
        for ids in DataLoader(Slow(), batch_size=4):
            torch.func.functional_call(script.model[1], {}, (script.model[0].weight[ids],)).square().mean().backward()
            script.optimizer.step()
            script.optimizer.zero_grad()
    assert min(one["data_wait"] for one in script.seen()["timed"]) >= 0.08


def test_a_script_that_is_not_stopped_goes_on(tmp_path: Path) -> None:
    script = Script(tmp_path, Asked(steps=3, warm_up=2, traced=1, stop=False))
    script.run(30)
    assert script.steps == 30
    assert len(script.seen()["timed"]) == 3


def test_a_script_that_catches_the_stop_is_left_alone_in_the_end(tmp_path: Path) -> None:
    script = Script(tmp_path, Asked(steps=1, warm_up=1, traced=0))
    caught = 0
    for _ in range(20):
        try:
            script.run(1)
        except SystemExit:
            caught += 1
    assert caught == 3
    assert [one.get("times") for one in events(tmp_path) if one["event"] == "stopped"] == [1, 2, 3]


@pytest.mark.parametrize("traced", [1, 2])
def test_a_script_that_ends_in_a_traced_step_is_not_stopped(traced: int, tmp_path: Path) -> None:
    script = Script(tmp_path, Asked(steps=3, warm_up=2, traced=traced))
    script.run(7, loader=False)  # the seventh is traced, and no quiet place comes behind it
    script.first.script_ends()
    assert [one["number"] for one in script.seen()["traced"]] == [7]
    assert [one["event"] for one in events(tmp_path)] == ["step", "observed"]


class Clock:
    """A device's: nothing can be read of it before somebody has waited for it."""

    def __init__(self, lost: int = 0) -> None:
        self.waited, self.made, self.lost = False, 0, lost

    def event(self) -> "Event":
        self.waited = False
        self.made += 1
        return Event(self, self.made)

    def wait(self) -> None:
        self.waited = True


class Event:
    def __init__(self, clock: Clock, number: int) -> None:
        self.clock, self.number = clock, number

    def elapsed_time(self, other: "Event") -> float:
        if not self.clock.waited or other.number == self.clock.lost:
            raise RuntimeError("the event is not ready")
        return 7.0


def test_what_watching_takes_is_no_time_of_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dynotune.profile.foreign.inside import listen

    plain = listen.batch_of
    pause = 0.2

    def slow(*args: Any, **more: Any) -> Any:
        time.sleep(pause)
        return plain(*args, **more)

    monkeypatch.setattr(listen, "batch_of", slow)
    script = Script(tmp_path, Asked(steps=3, warm_up=1, traced=0, stop=False))
    script.run(6)
    found = script.seen()
    assert min(one["seconds"] for one in found["timed"]) < pause
    assert found["foreign"]["own_seconds"] >= pause  # and still told


def test_events_are_of_the_device_that_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a rank that never set its current device, an event without a stream is recorded on the first GPU."""
    from dynotune.profile.foreign.inside.timed import TimedSteps

    class Recorded:
        on: str | None = None

        def __init__(self, enable_timing: bool) -> None: ...

        def record(self, stream: str | None = None) -> None:
            self.on = stream

    monkeypatch.setattr(torch.cuda, "Event", Recorded)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"a stream of {device}")
    assert TimedSteps(torch.device("cuda:1"))._event().on == "a stream of cuda:1"


def test_the_devices_clock_of_a_script_that_ends_by_itself_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dynotune.profile.foreign.inside import timed, watch

    def found(name: str, clock: Clock) -> dict[str, Any]:
        monkeypatch.setattr(timed.TimedSteps, "_event", clock.event)
        for module in (timed, watch):
            monkeypatch.setattr(module, "wait_for", lambda device: clock.wait())
        folder = tmp_path / name
        folder.mkdir()
        script = Script(folder, Asked(steps=9, warm_up=2))
        script.run(6)
        script.first.script_ends()
        return script.seen()

    whole = found("whole", Clock())
    assert [one["seconds"] for one in whole["timed"]] == [0.007] * 3
    assert not any("clock" in note for note in whole["notes"])
    torn = found("torn", Clock(lost=4))  # the end of the second step
    assert [one["number"] for one in torn["timed"]] == [4, 6]
    assert "The device's clock tells nothing of 1 of 3 steps: they are left out." in torn["notes"]


def test_steps_of_another_optimizer_do_not_count(tmp_path: Path) -> None:
    script = Script(tmp_path, Asked(steps=2, warm_up=1, traced=0))
    other = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    other.register_step_post_hook(script.first.after_update)
    with suppress(SystemExit):
        for _ in range(20):
            script.run(1)
            other.step()
    assert script.steps == 3
    assert any("2 optimizers step" in note for note in script.seen()["notes"])


def test_what_we_do_wrong_does_not_reach_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dynotune.profile.foreign.inside import watch

    def broken(parameters: Any) -> None:
        raise KeyError("of ours")

    monkeypatch.setattr(watch, "look_for", broken)
    script = Script(tmp_path, Asked(steps=1, warm_up=1))
    script.run(5)
    assert script.steps == 5
    (failed,) = [one for one in events(tmp_path) if one["event"] == "failed"]
    assert "KeyError: 'of ours'" in failed["why"]


def test_nor_what_we_do_wrong_where_its_model_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dynotune.profile.foreign.inside import listen

    def broken(*args: Any, **kwargs: Any) -> None:
        raise KeyError("of ours")

    monkeypatch.setattr(listen, "batch_of", broken)
    script = Script(tmp_path, Asked(steps=1, warm_up=1))
    script.run(5)
    assert script.steps == 5
    assert not any(one._forward_pre_hooks for one in script.model.modules())
    assert [one["event"] for one in events(tmp_path)] == ["step", "failed"]


@pytest.mark.parametrize("backward", [True, False])
def test_a_step_without_loader_or_model_is_traced_from_gradient_to_gradient(backward: bool, tmp_path: Path) -> None:
    weight = nn.Parameter(torch.ones(3))  # of no module
    first = FirstStep(tmp_path, Asked(steps=2, warm_up=1, traced=1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.register_step_post_hook(first.after_update)
    with suppress(SystemExit):
        for _ in range(9):
            if backward:
                weight.square().sum().backward()
            else:
                weight.grad = torch.ones(3)
            optimizer.step()
    (found,) = observed(tmp_path)
    assert len(found["timed"]) == 2
    assert len(found["traced"]) == int(backward)
    assert any("No step could be traced" in note for note in found["notes"]) != backward


def test_half_a_line_of_a_process_that_was_ended_is_no_event(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(json.dumps({"event": "python", "pid": 1}) + '\n{"event": "tor')
    assert [one["event"] for one in events(tmp_path)] == ["python"]


def test_a_snapshot_of_memory_is_taken_of_a_traced_step_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the script's own history of it is off behind that. The control is a CPU, which has none."""
    from dynotune.profile.foreign.inside.listen import Between, Listening
    from dynotune.profile.foreign.inside.tracing import Tracing

    done: list[Any] = []
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **asked: done.append(asked))
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", done.append)
    monkeypatch.setattr(Tracing, "_kept", lambda self, step, seen: {})
    model = nn.Linear(2, 2)
    for device, wanted in (("cuda", [{"max_entries": 200_000}, "m.pickle", {"enabled": None}]), ("cpu", [])):
        done.clear()
        listening = Listening((model,), None, lambda: None, lambda error: None)
        tracing = Tracing(listening, model, torch.device(device), "m.pickle")
        tracing.device = torch.device("cpu")  # there is no other one to trace here
        tracing.begin(1)
        tracing.after_update(Between())
        tracing.end()
        listening.stop()
        assert done == wanted
