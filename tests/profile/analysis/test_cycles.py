"""Promise: a slow-down that comes back is named by its period, unless what has it is named already."""

import random
from dataclasses import replace

import pytest

from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.analysis.cycles import periodic
from dynotune.profile.analysis.placement import cannot_know
from dynotune.profile.records.record import EVALUATE, LOG, SAVE, Record, TimedStep
from tests.profile.made import record

EVERY = 50


def every_50_steps(extra: float) -> tuple[TimedStep, ...]:
    """300 steps of 10 ms with noise; some of them longer."""
    draw = random.Random(0)
    return tuple(
        TimedStep(i, 0.01 * draw.uniform(0.98, 1.02) + extra * (i % EVERY == 7), data_wait=0.0) for i in range(300)
    )


def sentences(timed: tuple[TimedStep, ...]) -> list[str]:
    found: Record = replace(record(), timed=timed)
    return [one.sentence for one in periodic(found, None)]


def test_a_cycle_of_50_steps() -> None:
    (said,) = sentences(every_50_steps(0.03))
    assert said.startswith("every 50 steps one takes 4.0 times as long")
    assert said.endswith("nothing that was observed has this period")
    assert sentences(every_50_steps(0.0)) == []


def test_what_comes_with_it_and_has_a_finding_of_its_own_is_not_said_twice() -> None:
    logged = [replace(one, happened=(LOG,)) if one.number % EVERY == 7 else one for one in every_50_steps(0.03)]
    assert sentences(tuple(logged)) == []


@pytest.mark.parametrize("wait", [0.03, 0.0])
def test_a_loader_that_falls_behind_is_named(wait: float) -> None:
    late = [replace(one, data_wait=wait if one.number % EVERY == 7 else 1e-5) for one in every_50_steps(0.03)]
    (said,) = sentences(tuple(late))
    assert said.endswith("in the wait for data") == bool(wait)


def test_a_cycle_that_is_explained_does_not_hide_another() -> None:
    """Logging every 10 steps, and something unknown every 50. The control: both unknown, both said."""
    steps = [replace(one, seconds=one.seconds + 0.01 * (one.number % 10 == 3)) for one in every_50_steps(0.03)]
    assert len(sentences(tuple(steps))) == 2
    logged = [replace(one, happened=(LOG,)) if one.number % 10 == 3 else one for one in steps]
    (said,) = sentences(tuple(logged))
    assert said.startswith("every 50 steps")


@pytest.mark.parametrize("every_step", [(LOG,), ()])
def test_what_happens_in_every_step_hides_nothing_that_happens_in_some(every_step: tuple[str, ...]) -> None:
    """`logging_steps=1`: no step is without a row, and evaluations stand beside those that have nothing else."""

    def what(i: int) -> tuple[str, ...]:
        return (*every_step, *(EVALUATE,) * (i % 10 == 3), *(SAVE,) * (i % 7 == 2))

    draw = random.Random(0)
    steps = tuple(
        TimedStep(i, 0.01 * draw.uniform(0.98, 1.02) + 0.05 * (i % 10 == 3) + 0.02 * (i % 7 == 2), happened=what(i))
        for i in range(100)
    )
    found = {one.name: one for one in analyse(replace(record(), timed=steps, traced=())).found}
    assert set(found) == {"slow-evaluate", "slow-save"}
    assert "10 steps with evaluate, every 10 steps" in found["slow-evaluate"].sentence
    assert found["slow-evaluate"].seconds == pytest.approx(0.005, rel=0.05)
    assert found["slow-save"].seconds == pytest.approx(0.02 / 7, rel=0.1)


def test_a_script_that_logs_every_step_and_does_nothing_else_is_clean() -> None:
    """The control."""
    steps = tuple(replace(one, happened=(LOG,)) for one in every_50_steps(0.0))
    assert analyse(replace(record(), timed=steps, traced=())).clean


def test_a_cycle_below_what_slow_steps_tell_is_named_with_what_has_it() -> None:
    """Two percent of the time: too little for a finding of its own, and no unknown slow-down."""
    saved = tuple(replace(one, happened=(SAVE,) * (one.number % EVERY == 7)) for one in every_50_steps(0.01))
    (found,) = analyse(replace(record(), timed=saved, traced=())).found
    assert found.name == "periodic-slow-down"
    assert found.sentence.endswith("2.0 % of the time, with save")
    assert found.remedy is not None
    assert found.remedy.setting == "save_steps=1000"


def test_a_long_document_that_comes_back_is_no_slow_down() -> None:
    """The control: the same seconds with the same tokens in every step."""
    steps = every_50_steps(0.03)
    assert sentences(tuple(replace(one, processed_tokens=int(1e5 * one.seconds)) for one in steps)) == []
    assert len(sentences(tuple(replace(one, processed_tokens=1000) for one in steps))) == 1


def test_what_goes_by_the_clock_is_said_with_about() -> None:
    steps = [replace(one, seconds=0.03) if int(one.number % 7.3) == 0 else one for one in every_50_steps(0.0)]
    (said,) = sentences(tuple(steps))
    assert said.startswith("about every 7 steps")


def test_too_few_steps_for_a_cycle_are_said() -> None:
    def said(steps: int) -> list[str]:
        one: Record = replace(record(), timed=every_50_steps(0.0)[:steps])
        return [line for line in cannot_know(one, None) if "too few" in line]

    assert said(20) == ["20 steps were timed, too few to see any cycle: `--steps 200` sees what comes back every 50"]
    assert "cycles of more than 25 steps" in said(100)[0]
    assert said(200) == []
