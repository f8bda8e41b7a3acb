"""Promise: the interval of pairs is that of the sign-flip test, swapping arms turns signs only, and with noise of A against
A a difference has to clear more."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dynotune.bench import statistics
from dynotune.bench.statistics import (
    LOOKS,
    MANY,
    SIGNS,
    bootstrap,
    estimate,
    half_width,
    log_ratios,
    margin_of,
    noise_floor,
    sign_flip_p,
    t_quantile,
    t_tail,
    width_of,
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


@given(st.lists(RATIO, min_size=2, max_size=SIGNS - 1))
def test_of_few_pairs_the_interval_is_that_of_scipy_times_what_looking_repeatedly_costs(pairs: list[float]) -> None:
    found = estimate(pairs)
    t = stats.t.ppf(0.975, len(pairs) - 1) * np.std(pairs, ddof=1) / math.sqrt(len(pairs))
    assert found.half_width == pytest.approx(LOOKS * t, rel=1e-7, abs=1e-12)


@given(PAIRS)
def test_the_interval_holds_the_mean(pairs: list[float]) -> None:
    found = estimate(pairs)
    assert half_width(pairs) == found.half_width
    assert found.mean == pytest.approx(np.mean(pairs), abs=1e-12)
    assert found.low <= found.mean <= found.high
    assert found.interval.low <= found.interval.estimate <= found.interval.high


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=SIGNS, max_size=10, unique=True), st.sampled_from((0.4, 0.9, 1.1, 2.0)))
def test_the_interval_holds_what_the_sign_flip_test_does_not_reject(values: list[int], share: float) -> None:
    """Of any middle: inside of the interval, taken without the factor for looking, its p is above 5 %, up to one step of
    those that so many pairs can have; outside it is below."""
    pairs = [value / 997 for value in values]
    found = estimate(pairs)
    step = 2 / 2 ** len(pairs)
    for end in (found.low, found.high):
        middle = found.mean + share / LOOKS * (end - found.mean)
        p = sign_flip_p([pair - middle for pair in pairs])
        assert p >= 0.05 - step if share < 1 else p <= 0.05 + 2 * step


@pytest.mark.parametrize("pairs", [6, 8, 11, 13])
def test_the_middle_is_missed_as_often_as_it_says_however_long_the_tails_are(pairs: int) -> None:
    """Promise of the method, of one look. Control: Student's interval of the same pairs misses too seldom."""
    drawn = np.random.default_rng(3).standard_t(1.2, (1500, pairs))
    missed = student = 0
    for row in drawn:
        low, high = statistics._middle(statistics._subset_means(row))
        missed += not low <= 0 <= high
        half = stats.t.ppf(0.975, pairs - 1) * np.std(row, ddof=1) / math.sqrt(pairs)
        student += abs(np.mean(row)) > half
    assert (0.03 if pairs == SIGNS else 0.035) <= missed / 1500 <= 0.065
    assert student / 1500 < 0.03


def test_many_pairs_are_read_from_subsets_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    values = list(np.random.default_rng(0).normal(0.3, 1, 18))
    exact = estimate(values)
    monkeypatch.setattr(statistics, "ENUMERATED", 17)
    drawn = estimate(values)
    assert (drawn.low, drawn.high) == pytest.approx((exact.low, exact.high), abs=0.03)
    assert (drawn.low, drawn.high) == (estimate(values).low, estimate(values).high)


@given(PAIRS, NOISE)
def test_swapping_the_arms_turns_signs_and_nothing_else(pairs: list[float], noise: list[float]) -> None:
    one, other = estimate(pairs, noise), estimate([-d for d in pairs], [-d for d in noise])
    assert (other.mean, other.low, other.high, other.median) == (-one.mean, -one.high, -one.low, -one.median)
    assert (other.half_width, other.margin, other.sign_flip_p) == (one.half_width, one.margin, one.sign_flip_p)
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
def test_noise_leaves_the_interval_as_it_is(pairs: list[float], noise: list[float]) -> None:
    with_noise, without = estimate(pairs, noise), estimate(pairs)
    assert (with_noise.low, with_noise.high) == (without.low, without.high)
    assert (with_noise.margin > 0) == (noise_floor(noise) > 0.01)


def test_blocks_of_one_arm_that_differ_by_more_than_one_per_cent_ask_for_more() -> None:
    assert margin_of([0.005, -0.009], 16) == 0
    assert margin_of([0.04, -0.03], 16) == 0.01
    assert noise_floor([0.04, -0.03]) == pytest.approx(math.expm1(0.04))
    assert noise_floor([]) == 0


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


@pytest.mark.parametrize("pairs", [2, 15, 16, 200])
def test_half_the_width_of_so_many_pairs_is_students(pairs: int) -> None:
    plain = stats.t.ppf(0.975, pairs - 1) * 0.02 / math.sqrt(pairs)
    assert width_of(0.02, pairs) == pytest.approx((LOOKS if pairs < MANY else 1.0) * plain)


def test_pairs_without_any_spread_have_no_width() -> None:
    assert width_of(0.0, 2) == 0
    assert estimate([0.125, 0.125, 0.125]).half_width == 0
