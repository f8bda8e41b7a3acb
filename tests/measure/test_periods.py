"""Promise: a slow-down that comes back is found with its period and what has it; noise, trends and levels raise no alarm."""

import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.measure import periods, periods_about
from dynotune.measure.periods import UNLIKELY, find_period, log_tail, what_has_it, without_work

Generator = np.random.Generator


def noise(chance: Generator, n: int) -> np.ndarray:
    """Steps of 100 ms as they are: a little noise, and now and then one that is slow for no reason."""
    return 0.1 * (1 + 0.01 * chance.standard_normal(n) + chance.exponential(0.3, n) * (chance.random(n) < 0.03))


QUIET: dict[str, Callable[[Generator, int], np.ndarray]] = {
    "white": lambda chance, n: 0.1 * (1 + 0.05 * chance.standard_normal(n)),
    "heavy tails": noise,
    "a trend": lambda chance, n: noise(chance, n) * np.linspace(1, 1.5, n),
    "two levels": lambda chance, n: noise(chance, n) * np.where(np.arange(n) < n // 2, 1, 1.3),
    "slow drift": lambda chance, n: noise(chance, n) * (1 + 0.1 * np.sin(np.arange(n) / 60)),
    "steps of uneven work": lambda chance, n: 0.1 * chance.lognormal(0, 0.3, n),
    "steps that depend on the one before": lambda chance, n: 0.1 + 0.001 * _after(chance.standard_normal(n), 0.5),
}


def _after(values: np.ndarray, by: float) -> np.ndarray:
    for i in range(1, len(values)):
        values[i] += by * values[i - 1]
    return values


@pytest.mark.parametrize("kind", QUIET)
def test_no_false_alarm_in_99_of_100_runs(kind: str) -> None:
    alarms = sum(
        find_period(QUIET[kind](np.random.default_rng(seed), n)) is not None for seed in range(150) for n in (64, 256)
    )
    assert alarms <= 3, "of 300"


@settings(max_examples=60, deadline=None)
@given(every=st.integers(2, 60), phase=st.integers(0, 59), times=st.floats(1.5, 6), seed=st.integers(0, 10**6))
def test_a_planted_period_is_found(every: int, phase: int, times: float, seed: int) -> None:
    n = max(64, 8 * every)
    series = 0.1 * (1 + 0.01 * np.random.default_rng(seed).standard_normal(n))
    series[phase % every :: every] *= times
    found = find_period(series)
    assert found is not None
    assert found.every == every
    assert {index % every for index in found.indices} == {phase % every}
    assert found.times == pytest.approx(times, rel=0.1)


def test_a_cycle_every_50_steps_is_found_under_real_noise_and_named() -> None:
    series = noise(np.random.default_rng(1), 400)
    series[49::50] += 0.15
    found = find_period(series)
    assert found is not None
    assert (found.every, len(found.indices)) == (50, 8)
    assert found.share == pytest.approx(0.15 / 5.15, rel=0.15)
    slow = range(49, 400, 50)
    happened = {"saving": [49], "logging": range(0, 400, 10), "evaluation": slow, "garbage collection": range(400)}
    assert what_has_it(found, happened, {}) == "evaluation"
    assert what_has_it(found, {"logging": range(5, 400, 10)}, {}) == ""
    waits = np.zeros(400)
    waits[49::50] = 0.14
    assert what_has_it(found, {}, {"host": np.zeros(400), "data": waits}) == "data"


def test_what_costs_next_to_nothing_is_not_told() -> None:
    series = np.full(400, 0.1)
    series[9::10] += 0.1 * 0.02
    assert find_period(series) is None
    series[9::10] += 0.1 * 0.2
    assert find_period(series) is not None, "the control"


def test_steps_that_hold_more_take_longer_and_that_is_no_slow_down() -> None:
    """A cycle that the lengths of documents hide is found once what follows from tokens is taken away."""
    chance = np.random.default_rng(5)
    tokens = chance.lognormal(8, 0.5, 300)
    series = 0.02 + 2e-5 * tokens + 0.001 * chance.standard_normal(300)
    series[24::25] += 0.06
    assert find_period(series) is None
    found = find_period(without_work(series, tokens).tolist())
    assert found is not None
    assert found.every == 25
    assert found.extra == pytest.approx(0.06, rel=0.15)
    assert without_work([0.1] * 40, [7.0] * 40).tolist() == [0.1] * 40
    assert len(without_work([], [])) == 0


def test_short_series_and_equal_steps_have_no_period() -> None:
    assert find_period([]) is None
    assert find_period([0.1, 0.2] * 10) is None, "too short to tell"
    assert find_period([0.1] * 500) is None


def test_the_chance_is_the_hypergeometric_one() -> None:
    exact = sum(math.comb(5, k) * math.comb(15, 5 - k) for k in (4, 5)) / math.comb(20, 5)
    assert math.exp(log_tail(4, 20, 5)) == pytest.approx(exact)
    assert log_tail(0, 20, 5) == pytest.approx(0.0, abs=1e-12)


def test_the_first_look_of_a_run_loads_no_package() -> None:
    """`numpy.ma`, which numpy's own median and unique load, takes a run 6 ms in a step. The control is numpy's median."""
    look = (
        "import sys, numpy as np; from dynotune.measure.periods import find_periods, what_has_it, without_work;"
        "t = 1 + 0.01 * np.random.default_rng(0).random(300); t[(7.3 * np.arange(1, 41)).astype(int)] += 1; t[::50] += 2;"
        "found = find_periods(without_work(t.tolist(), range(300)));"
        "assert {one.about for one in found} == {True, False};"
        "assert [what_has_it(one, {}, {'host': t}) for one in found] == ['host'] * 2;"
        "assert 'numpy.ma' not in sys.modules; np.median(t); assert 'numpy.ma' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", look], check=True)


def test_periods_that_are_ruled_out_at_once_are_none_that_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: what is left is a small part of all."""
    random, left = np.random.default_rng(0), list[float]()
    quickly = periods._maybe_exact
    for run in range(90):
        steps = int(random.choice([33, 64, 100, 257, 512]))
        times, every = random.normal(1.0, 0.05, steps), int(random.integers(2, steps // 4))
        times[int(random.integers(every)) :: every] += random.choice([0.0, 0.1, 0.5])
        times[random.random(steps) < 0.1] += 0.5 * (run % 2)
        order = np.argsort(-periods.above_neighbours(times), kind="stable")
        left.append(len(quickly(order, steps // 4)) / (steps // 4))
        found = periods._exact(times, order)
        with monkeypatch.context() as patch:
            patch.setattr(periods, "_maybe_exact", lambda order, longest: range(2, longest + 1))
            assert periods._exact(times, order) == found
    assert sum(left) / len(left) < 0.3


def test_what_could_not_be_unlikely_enough_is_not_gone_through_and_nothing_is_missed_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A comb without a fault, which is as unlikely as can be, in series of all the lengths that a run looks at."""
    looks: list[tuple[np.ndarray, ...]] = []
    best_places = periods_about._best_places

    def heard(*given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        looks.append(given)
        return best_places(*given)

    monkeypatch.setattr(periods_about, "_best_places", heard)
    told = []
    for steps in (64, 128, 256, 512):
        times = np.ones(steps)
        times[(7.3 * np.arange(1, steps // 7.3)).astype(int)] = 2
        order = np.argsort(-times, kind="stable")
        looks.clear()
        everything, all_looks = periods_about.about(order, 4, 0.7, math.inf), len(looks)
        looks.clear()
        found = periods_about.about(order, 4, 0.7, math.log(UNLIKELY))
        assert len(looks) < all_looks
        assert everything is not None
        told.append(everything.log_chance < math.log(UNLIKELY))
        assert not told[-1] or found == everything
    assert told == [False, False, True, True]
