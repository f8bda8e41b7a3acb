"""Promise: kill -9 at any moment costs the steps since the last checkpoint, and nothing else.

Fifty kills, at moments that are drawn over a run's time, in each of its phases, and at calls that change the disk. After
each, every folder that has the name of a checkpoint is whole and holds what the undisturbed run saved at that step, and none
is lost; the run goes on, is killed again, and ends with the same rows and the same adapter to the last bit.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.runs import Server, Story, inputs, server, what_is_wrong_at_the_end, what_is_wrong_now

KILLS = 50
EACH_PHASE = ("prepare", "train", "evaluate", "save", "finish")
ONCE = ("prepare", "train", "finish")
CALLS = {"fsync": 60, "rename": 12, "replace": 8, "mkdir": 30, "unlink": 40, "rmdir": 12}
"""Calls at which a process dies, and up to the how many-th."""


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    errors = tmp_path_factory.mktemp("server") / "errors"
    with errors.open("w") as file, server(file) as running:
        yield running


def undisturbed(warm: Server, tmp_path: Path) -> tuple[Path, Path, float]:
    """Inputs, the run folder with every checkpoint, and how long it took."""
    given = inputs(tmp_path / "inputs")
    story = Story(tmp_path / "whole", given, {"save_total_limit": None, "save_steps": 1})
    done = warm.run(story.next())
    assert done.code == 0, done.said
    return given, story.run, done.seconds


@pytest.mark.long
def test_fifty_kills(warm: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, whole, seconds = undisturbed(warm, tmp_path)
    chance, landed, runs, wrong = random.Random(4), Counter[str](), 1, list[str]()
    number = 0
    while sum(landed.values()) < KILLS or not all(landed[phase] for phase in EACH_PHASE):
        number += 1
        assert number < 2 * KILLS
        story = Story(tmp_path / f"story-{number}", given, job={"background": number % 2 == 0})
        strikes = 6
        while True:
            job, after = story.next(), None
            way = chance.choice(("time", "phase", "call")) if strikes else "none"
            if way == "time":
                after = chance.random() * seconds
            elif way == "phase":
                phase = chance.choice(EACH_PHASE)
                # Nearly every phase is over within that time: it ends in the phase, or right behind it.
                job["die_in"] = {
                    "phase": phase,
                    "count": 1 if phase in ONCE else chance.randint(1, 3),
                    "after": chance.random() * 0.02,
                }
            elif way == "call":
                call = chance.choice(sorted(CALLS))
                job["die_at"] = {"call": call, "count": chance.randint(1, CALLS[call])}
            strikes = max(0, strikes - 1)
            outcome = warm.run(job, after)
            runs += 1
            if outcome.code == 0:
                break
            assert outcome.code == -9, outcome.said
            landed[outcome.phase] += 1
            wrong += what_is_wrong_now(story, whole, outcome.saved)
        wrong += what_is_wrong_at_the_end(story, whole)
    with capsys.disabled():
        print(f"\n{sum(landed.values())} kills in {number} stories of {runs} runs, by phase: {dict(landed)}")
    assert wrong == []
    assert all(landed[phase] for phase in EACH_PHASE), landed


@pytest.mark.long
def test_a_careless_writer_is_caught(warm: Server, tmp_path: Path) -> None:
    """Negative control: files written where they belong, without a rename."""
    given, whole, _ = undisturbed(warm, tmp_path)
    chance, wrong = random.Random(4), list[str]()
    for number in range(6):
        story = Story(tmp_path / f"story-{number}", given, job={"careless": True})
        outcome = warm.run(story.next(die_at={"call": "fsync", "count": chance.randint(12, 40)}))
        assert outcome.code == -9, outcome.said
        wrong += what_is_wrong_now(story, whole, outcome.saved)
    assert any("has the name of a checkpoint and is none" in one for one in wrong)
