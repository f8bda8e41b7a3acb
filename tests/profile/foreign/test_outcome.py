"""Promise: a command in which nothing could be seen is told how far it came, by its exit code and last lines."""

import pytest

from dynotune.profile.foreign.outcome import notes_of, why_nothing
from dynotune.profile.foreign.run import Ran

PYTHON, TORCH, STEP = ({"event": event, "pid": 7} for event in ("python", "torch", "step"))


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([], "no process of Python started"),
        ([PYTHON], "none imported PyTorch"),
        ([PYTHON, TORCH], "no optimizer of torch.optim took a step"),
        ([PYTHON, TORCH, STEP], "before the warm-up was over"),
        ([PYTHON, TORCH, STEP, {"event": "failed", "pid": 7, "why": "KeyError: x"}], "a defect of Dynotune"),
    ],
)
def test_how_far_it_came(events: list[dict[str, object]], says: str) -> None:
    text = str(why_nothing(("python", "train.py"), Ran(1, 2.0, ("Traceback", "KeyError: \x1b[2J")), events))
    assert says in text
    assert "exit code 1" in text
    assert "KeyError: \\x1b[2J" in text  # for a terminal


def test_a_command_that_ended_well_needs_no_note() -> None:
    assert notes_of(Ran(0, 2.0, ("done",)), [PYTHON, TORCH, STEP], stopped=True, ended="steps") == []


def test_what_went_wrong_behind_the_steps_is_noted() -> None:
    assert "SIGKILL" in notes_of(Ran(-9, 2.0, ()), [], stopped=True, ended="steps")[0]
    assert "SIGTERM" in notes_of(Ran(-15, 2.0, (), ended_by_us=True), [], stopped=True, ended="steps")[0]
    caught = notes_of(Ran(0, 2.0, ()), [{"event": "stopped", "times": 2}], stopped=True, ended="steps")
    assert caught == ["The script caught the exception that stops it (SystemExit) and went on."]
