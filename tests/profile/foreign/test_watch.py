"""Promise: the hooks of an optimizer take a script through warming up, timed and traced steps, and leave nothing behind."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

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
