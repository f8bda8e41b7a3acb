"""Promise: what is planted in a run of ours is named by its profile, and without it nothing is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from transformers import TrainerCallback

from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.observing.own import Asked, observe
from dynotune.train.start.given import Given
from tests.profile.observing.test_own import config, folder

__all__ = ["folder"]

pytestmark = pytest.mark.long

Names = Callable[..., set[str]]


@pytest.fixture
def names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Names:
    """Of what is found in a short run with these settings."""
    monkeypatch.setenv("DYNOTUNE_CACHE", str(folder / "cache"))
    measuring = "dynotune bench --config x.yaml --set {change}"

    def found(**settings: Any) -> set[str]:
        record = observe(config(folder, **settings), Asked(4, measuring, warm_up=3), Console(quiet=True))
        return {one.name for one in analyse(record).found}

    return found


def test_a_clean_run_is_called_clean_and_an_update_in_a_loop_is_named(names: Names) -> None:
    """Once in some times: a step that a busy host held up has little of the update, and waits for data."""
    assert any(not names() for _ in range(20))
    assert any("unfused-optimizer" in names(speedups={"fused_optimizer": "off"}) for _ in range(20))


def test_a_value_that_a_callback_reads_in_each_step(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    class Reads(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            next(p for p in model.parameters() if p.requires_grad).sum().item()

    assert "host-reads" not in names()
    given = lambda callbacks: Given(callbacks=[*callbacks, Reads()])  # noqa: E731
    monkeypatch.setattr("dynotune.profile.observing.own.Given", given)
    assert "host-reads" in names()


def test_a_gpu_that_is_there_and_not_used(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    from dynotune.profile.observing import own

    inner = own.environment_of
    assert "weights-elsewhere" not in names()
    monkeypatch.setattr(own, "environment_of", lambda *args, **more: inner(*args, **more) | {"gpus": 1})
    assert "weights-elsewhere" in names()
