"""Promise: the interval of pairs is Student's, swapping arms turns signs only, and noise of A against A only widens it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dynotune.bench import statistics
from dynotune.bench.statistics import (
    LOOKS,
    MOST_PAIRS,
    bootstrap,
    estimate,
    half_width,
    log_ratios,
    noise_floor,
    note_of_noise,
    pairs_needed,
    sign_flip_p,
    t_quantile,
    t_tail,
)

RATIO = st.floats(-1, 1, allow_subnormal=False)
PAIRS = st.lists(RATIO, min_size=2, max_size=12)
NOISE = st.lists(RATIO, max_size=3)


@pytest.mark.parametrize("freedom", [*range(1, 31), 100, 999])
def test_students_t_is_that_of_scipy(freedom: int) -> None:
    for probability in (0.5, 0.9, 0.95, 0.975, 0.9995):
        assert t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-9, abs=1e-11)
    for t in (-3.0, -0.2, 0.0, 0.7, 4.0):
        assert t_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), abs=1e-14)


@given(PAIRS)
def test_the_interval_is_that_of_scipy_times_what_looking_repeatedly_costs(pairs: list[float]) -> None:
    found = estimate(pairs)
    t = stats.t.ppf(0.975, len(pairs) - 1) * np.std(pairs, ddof=1) / math.sqrt(len(pairs))
    assert found.half_width == pytest.approx(LOOKS * t, rel=1e-7, abs=1e-12)
    assert half_width(pairs) == found.half_width
    assert found.mean == pytest.approx(np.mean(pairs), abs=1e-12)
    assert found.interval.low <= found.interval.estimate <= found.interval.high


@given(PAIRS, NOISE)
def test_swapping_the_arms_turns_signs_and_nothing_else(pairs: list[float], noise: list[float]) -> None:
    one, other = estimate(pairs, noise), estimate([-d for d in pairs], [-d for d in noise])
    assert (other.mean, other.low, other.high, other.median) == (-one.mean, -one.high, -one.low, -one.median)
    assert (other.half_width, other.widened, other.sign_flip_p) == (one.half_width, one.widened, one.sign_flip_p)
    assert other.interval.estimate == pytest.approx(1 / one.interval.estimate)


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=2, max_size=12), st.randoms())
def test_the_order_of_the_pairs_does_not_matter(rates: list[tuple[float, float]], random: object) -> None:
    def of(pairs: list[tuple[float, float]]) -> statistics.Estimate:
        return estimate(log_ratios([a for a, _ in pairs], [b for _, b in pairs]))

    shuffled = rates.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = of(rates), of(shuffled)
    assert (one.mean, one.median) == (other.mean, other.median)
    assert one.half_width == pytest.approx(other.half_width, abs=1e-12)
    assert one.sign_flip_p == other.sign_flip_p


@given(PAIRS, NOISE)
def test_noise_can_only_widen(pairs: list[float], noise: list[float]) -> None:
    with_noise, without = estimate(pairs, noise), estimate(pairs)
    assert with_noise.half_width >= without.half_width
    assert with_noise.widened == (with_noise.half_width > without.half_width)
    if noise_floor(noise) <= 0.01:
        assert not with_noise.widened


def test_blocks_of_one_arm_that_differ_by_more_than_one_per_cent_widen() -> None:
    pairs = [0.029, 0.031, 0.030, 0.032, 0.028, 0.030]
    assert not estimate(pairs, [0.005, -0.009]).widened
    noisy = estimate(pairs, [0.04, -0.03])
    assert noisy.widened
    assert noisy.half_width > 5 * estimate(pairs).half_width
    assert noise_floor([0.04, -0.03]) == pytest.approx(math.expm1(0.04))
    assert noise_floor([]) == 0
    assert note_of_noise([0.04, -0.03]) == "Two blocks of the same arm were 4.1% apart: intervals take that in."
    assert note_of_noise([0.005, -0.009]) == ""


def test_all_signs_alike_in_six_pairs_is_the_smallest_p_there_can_be() -> None:
    assert sign_flip_p([0.1, 0.2, 0.3, 0.1, 0.2, 0.3]) == 2 / 2**6
    assert sign_flip_p([0.0] * 6) == 1
    assert sign_flip_p([0.1, -0.1]) == 1


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=9))
def test_signs_are_turned_as_in_scipys_permutation_test(values: list[int]) -> None:
    exact = stats.permutation_test((values,), np.sum, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p([v / 7 for v in values]) == pytest.approx(min(1.0, exact.pvalue))


def test_many_pairs_are_drawn_and_near_the_exact_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    values = list(np.random.default_rng(0).normal(0.3, 1, 18))
    exact = sign_flip_p(values)
    monkeypatch.setattr(statistics, "ENUMERATED", 17)
    assert sign_flip_p(values) == pytest.approx(exact, abs=0.015)
    assert sign_flip_p([1.0] * 40) == 1 / statistics.DRAWS


def test_the_bootstrap_speaks_from_sixteen_pairs() -> None:
    values = list(np.random.default_rng(1).normal(0.02, 0.01, 16))
    assert estimate(values[:15]).bootstrap is None
    low, high = bootstrap(values)
    assert estimate(values).bootstrap == (low, high)
    plain = stats.t.ppf(0.975, 15) * np.std(values, ddof=1) / 4
    assert low < np.mean(values) < high
    assert 0.7 < (high - low) / (2 * plain) < 1


@settings(deadline=None)
@given(st.floats(1e-4, 0.2), st.floats(1e-3, 0.05))
def test_pairs_needed_are_enough_and_one_fewer_is_not(spread: float, wanted: float) -> None:
    def width(pairs: int) -> float:
        return float(LOOKS * stats.t.ppf(0.975, pairs - 1) * spread / math.sqrt(pairs))

    needed = pairs_needed(spread, wanted)
    assert 2 <= needed <= MOST_PAIRS
    assert width(needed) <= wanted * (1 + 1e-9) or needed == MOST_PAIRS
    assert needed == 2 or width(needed - 1) > wanted * (1 - 1e-9)


def test_pairs_without_any_spread_need_no_more() -> None:
    assert pairs_needed(0.0, 0.005) == 2
    assert estimate([0.125, 0.125, 0.125]).half_width == 0
