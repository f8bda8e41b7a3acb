"""Promise: what moved while a block ran is told apart from what moved in the step before it, which does not count."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dynotune.bench.workers import watch as room
from dynotune.bench.workers.watch import Watch


def told(segments: list[int], monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Of a block of steps 4 and 5 behind step 3; `segments` is what the allocator counts each time that it is asked."""
    asked: Iterator[int] = iter(segments)
    monkeypatch.setattr(room, "counters", lambda device: {"segments": next(asked), "retries": 0})
    watch, control = Watch(torch.device("cpu")), SimpleNamespace(should_training_stop=False)
    watch.arm(4, 5, watches_counters=False)
    state: Any = SimpleNamespace(global_step=2)
    watch.on_train_begin(None, state, control)
    for state.global_step in (3, 4, 5):
        watch.on_step_end(None, state, control)
    assert control.should_training_stop
    assert len(watch.step_seconds) == 2
    return watch.moved


def test_only_what_moves_within_the_block_is_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told([700, 703], monkeypatch) == {"segments": 3}
    assert told([700, 700], monkeypatch) == {}
