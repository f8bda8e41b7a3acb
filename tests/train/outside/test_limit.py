"""Promise: `max_time` saves in time, however long steps and saves take."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import TrainerCallback

from dynotune.errors import Interrupted, TrainingError
from dynotune.train.outside import asked as module
from dynotune.train.outside.limit import AT_LEAST, SLACK, TimeLimit

SECONDS = st.floats(0.01, 5)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(SECONDS, min_size=1, max_size=30), SECONDS, st.floats(0, SLACK), st.floats(20, 200))
def test_the_save_ends_before_the_limit(steps: list[float], save: float, worse: float, limit: float) -> None:
    """Whenever a step takes at most `SLACK` times the longest so far, and the last save as much."""
    clock = Clock()
    asked = TimeLimit(limit, 0.0, int(6 * 100e6), clock)
    asked.begin()
    longest = 0.0
    number = 0
    while True:
        step = steps[number % len(steps)]
        clock.now += min(step, SLACK * longest) if longest else step
        longest = max(longest, min(step, SLACK * longest) if longest else step)
        number += 1
        asked.step()
        if asked.leaves_no_step():
            break
        if number % 4 == 0:
            clock.now += save
            asked.saved(save)
            asked.wrote(save)
            if asked.leaves_no_step():
                worse = 0.0  # nothing is left to save
                break
    clock.now += save * worse
    if number > 1:  # the first step's length is known to nobody
        assert clock.now <= limit
    assert clock.now > limit - SLACK * (5 * SLACK + 6) - 5 - AT_LEAST - 2 * SLACK * 5  # and not needlessly early


def test_what_is_not_measured_does_not_save_in_time() -> None:
    """Negative control: without the longest save, the same run ends too late."""
    clock = Clock()
    asked = TimeLimit(10, 0.0, 0, clock)
    asked.begin()
    while not asked.leaves_no_step():
        clock.now += 1.0
        asked.step()
    assert clock.now + 5.0 > 10


def test_evaluation_and_saves_are_no_part_of_a_step() -> None:
    clock = Clock()
    asked = TimeLimit(1000, 0.0, 0, clock)
    asked.begin()
    for _ in range(3):
        clock.now += 1.0
        asked.step()
        clock.now += 40.0
        asked.evaluated(40.0)
    assert max(asked.steps) == pytest.approx(1.0)


def test_a_run_with_a_limit_is_saved_and_goes_on(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its steps are told to take a fifth of a second, on however slow a host."""
    clock = Clock()

    class Slow(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            clock.now += 0.2

    def told(seconds: float, began: float, save_bytes: int) -> TimeLimit:
        assert 0 <= time.monotonic() - began < 3600
        return TimeLimit(seconds, 0.0, save_bytes, clock)

    monkeypatch.setattr(module, "TimeLimit", told)
    with pytest.raises(Interrupted) as left:
        run_tiny(callbacks=[Slow()], max_steps=500, max_time="4s")
    assert clock.now == pytest.approx(0.2 * left.value.step)
    assert left.value.step == 14, "2.8 s: another one, a quarter longer, would leave less than a second"
    assert left.value.why == "`max_time`"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["interrupted"]["why"] == "`max_time`"
    again = run_tiny(max_steps=left.value.step + 2, max_time="1h", resume_from_checkpoint=True)
    assert again.steps == left.value.step + 2


def test_a_limit_that_is_over_before_the_first_step_is_an_error(run_tiny: Any) -> None:
    """To try again would take as long: exit code 75 would queue it for ever."""
    with pytest.raises(TrainingError, match="`max_time`"):
        run_tiny(max_time=0.001)


def test_the_machines_clock_does_not_count(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set forward by a day and back by two in the middle of a run."""
    real, calls = time.time, iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: real() + (86_400 if next(calls) % 2 else -2 * 86_400))
    result = run_tiny(max_steps=4, max_time="1h", save_strategy="steps", save_steps=2)
    assert result.steps == 4
    assert 0 <= result.summary["train_seconds"] < 3600
    assert all(0 < row["seconds_per_step"] < 3600 for row in result.metrics)
