"""Promise: a slow-down that comes back is told with what has it, by the seconds that a run has of it: evaluations and
checkpoints are no training, and rows that are written in their steps are not blamed."""

import io
import json
import re
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dynotune.measure.signs.cycle import REMEDIES
from dynotune.measure.signs.record import Sign
from dynotune.measure.wall import Kind
from dynotune.train.telling.watch import Watch
from tests.tiny import chats
from tests.train.telling.test_watch import window


def every_50_steps(watch: Watch, account: Any, *what: str, every: int = 50) -> None:
    """400 steps as a run takes them; what happens behind every 50th one is marked before the next."""
    for number in range(1, 401):
        watch.at(number)
        if number % every == 0:
            for each in what:
                watch.mark(each)
        if number % 10 == 0:
            watch.take(window(range(number - 9, number + 1), account))


def seconds_in(slow: dict[Kind, float], every: int = 50) -> Any:
    """Accounts of steps of 0.1 s, with more in the one behind every 50th: seconds by kind, as a run has them."""
    chance = np.random.default_rng(4)

    def account(number: int) -> dict[str, float]:
        found = {"forward_backward": 0.1 * (1 + 0.02 * chance.random()), "host": 0.001}
        for kind, seconds in slow.items() if number % every == 1 else ():
            found[kind] = found.get(kind, 0.0) + seconds * (1 + 0.1 * chance.standard_normal())
        return found

    return account


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("evaluation", Kind.EVALUATION),
        ("saving", Kind.CHECKPOINT),
        ("logging", Kind.HOST),
        ("garbage collection", Kind.FORWARD_BACKWARD),
    ],
)
def test_a_cycle_every_50_steps_is_told_with_what_has_it(
    heard: tuple[Watch, list[Sign]], what: str, kind: Kind
) -> None:
    """Where a run has its seconds: those of an evaluation and of a checkpoint are no training."""
    watch, told = heard
    every_50_steps(watch, seconds_in({kind: 0.3}), what)
    (sign,) = told
    assert sign.name == f"periodic-{what.replace(' ', '-')}"
    assert re.search(r"every 50 steps one takes (3\.[89]|4\.[01]) times as long", sign.figure)
    assert f"with {what}" in sign.figure
    assert sign.remedy == REMEDIES[what]


def test_logging_in_the_steps_of_an_evaluation_is_not_blamed(heard: tuple[Watch, list[Sign]]) -> None:
    """Not either for what training takes longer behind it."""
    watch, told = heard
    every_50_steps(watch, seconds_in({Kind.EVALUATION: 0.3, Kind.FORWARD_BACKWARD: 0.05}), "logging", "evaluation")
    (sign,) = told
    assert sign.figure.count("every 50 steps") == 1
    assert ("with evaluation" in sign.figure, "logging" in sign.figure) == (True, False)


def test_logging_that_costs_more_than_the_evaluation_in_its_steps_is_told(heard: tuple[Watch, list[Sign]]) -> None:
    """The control: a tracker that takes half a second."""
    watch, told = heard
    every_50_steps(watch, seconds_in({Kind.EVALUATION: 0.1, Kind.HOST: 0.5}), "logging", "evaluation")
    assert [sign.name for sign in told] == ["periodic-logging", "periodic-evaluation"], "the dearest first"
    assert [sign.remedy for sign in told] == [REMEDIES["logging"], REMEDIES["evaluation"]]


def test_a_long_evaluation_does_not_hide_a_cycle_of_training(heard: tuple[Watch, list[Sign]]) -> None:
    watch, told = heard
    inner = seconds_in({Kind.EVALUATION: 20.0}, every=12)

    def account(number: int) -> dict[str, float]:
        found: dict[str, float] = inner(number)
        found["data_wait"] = 0.05 if number % 7 == 0 else 0.0
        return found

    every_50_steps(watch, account, "evaluation", "logging", every=12)
    assert [sign.name for sign in told] == ["periodic-evaluation", "periodic-data"]
    assert "every 7 steps" in told[1].figure
    assert "with data" in told[1].figure


@pytest.mark.parametrize("often", [{Kind.EVALUATION: 0.02}, {Kind.EVALUATION: 2.0}, {Kind.HOST: 0.1}, {}])
def test_what_is_told_at_the_first_look_does_not_silence_what_is_seen_later(
    heard: tuple[Watch, list[Sign]], often: dict[Kind, float]
) -> None:
    """A stall that has come often enough after 200 steps, beside what comes every 12; without that in the control."""
    watch, told = heard
    inner = seconds_in(often, every=12)

    def account(number: int) -> dict[str, float]:
        found: dict[str, float] = inner(number)
        found["data_wait"] = 0.3 if number % 40 == 0 else 0.0
        return found

    every_50_steps(watch, account, "logging" if Kind.HOST in often else "evaluation", every=12)
    first = ["periodic-logging" if Kind.HOST in often else "periodic-evaluation"] if often else []
    assert [sign.name for sign in told] == [*first, "periodic-data"]
    assert "every 40 steps" in told[-1].figure


def test_what_was_told_with_its_cause_is_not_told_again_without(heard: tuple[Watch, list[Sign]]) -> None:
    """From step 100 on nothing known has the slow-down."""
    watch, told = heard

    def account(number: int) -> dict[str, float]:
        slow = 0.3 if number % 12 == 0 else 0.0
        known = slow if number <= 100 else 0.0
        return {"forward_backward": 0.1 + slow - known, "data_wait": known}

    every_50_steps(watch, account)
    assert [sign.name for sign in told] == ["periodic-data"]


def test_evaluations_that_take_nothing_of_note_are_not_told(heard: tuple[Watch, list[Sign]]) -> None:
    """The control: a tenth of a percent of the time."""
    watch, told = heard
    every_50_steps(watch, seconds_in({Kind.EVALUATION: 0.005, Kind.CHECKPOINT: 0.005}), "evaluation", "saving")
    assert told == []


def test_evaluations_of_a_real_run_are_told_and_not_the_rows_in_their_steps(run_tiny: Any) -> None:
    """By its own clock: an evaluation of 12 documents is a few steps long, on a busy machine too."""
    console = Console(width=300, record=True, file=io.StringIO())
    run = run_tiny(
        max_steps=84, logging_steps=8, eval_strategy="steps", eval_steps=8, eval_dataset=chats(12), console=console
    )
    kept = [json.loads(line) for line in (run.folder / "warnings.jsonl").read_text().splitlines()]
    (sign,) = [one for one in kept if one["name"] == "periodic-evaluation"]
    assert re.search(r"every 8 steps [^;]*, with evaluation", sign["figure"])
    assert not [one for one in kept if one["name"] == "periodic-logging"]
    assert sign["remedy"] == REMEDIES["evaluation"]
    assert "with evaluation" in console.export_text()
