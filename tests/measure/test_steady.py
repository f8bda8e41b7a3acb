"""Promise: nothing counts as training while something still compiles or a step's time still falls, and warming up ends."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.measure.steady import WarmingUp, in_words, level, moved, pays_back_after


def warmed(seconds: list[float], compilations: list[int] | None = None) -> WarmingUp:
    """Feeds steps until it is over; `compilations` is what each step compiles."""
    counts = accumulate(compilations or [0] * len(seconds))
    warming = WarmingUp({"compilations": 0})
    for step, count in zip(seconds, counts, strict=True):
        if warming.over:
            break
        warming.step(step, {"compilations": count})
    return warming


def test_ten_level_steps_without_an_event_are_enough() -> None:
    warming = warmed([0.5, 0.501, 0.499, 0.5, 0.5] * 10)
    assert (warming.steps, warming.stationary, warming.note, warming.events) == (10, True, "", [])


def test_a_level_between_two_compilations_is_no_level() -> None:
    warming = warmed([0.5] * 50, [2, *[0] * 7, 1, *[0] * 41])
    assert warming.steps == 19
    assert warming.events == ["2 compilations at step 1", "1 compilation at step 9"]
    assert warming.stationary


def test_steps_that_still_fall_are_warming_up() -> None:
    falling = [1.0 + 0.5 * 0.8**i for i in range(50)]
    warming = warmed(falling)
    assert warming.stationary
    assert warming.steps > 14
    assert falling[warming.steps - 1] < 1.02


def test_an_arm_that_never_is_level_ends_and_says_so() -> None:
    warming = warmed([1.05**i for i in range(60)])
    assert warming.over
    assert not warming.stationary
    assert warming.note.startswith("NOT STATIONARY after ")
    always = warmed([0.1] * 60, [1] * 60)
    assert always.steps == 50
    assert always.note == "NOT STATIONARY after 50 steps and 5 s of warming up: 1 compilation at step 50."


def test_of_long_steps_fewer_are_enough() -> None:
    assert warmed([3.9] * 20).steps == 4
    assert warmed([1.8] * 20).steps == 6
    assert warmed([1.8, 1.8, 1.8, 1.6, 1.6, 1.6, 1.5, *[1.5] * 20]).steps > 6, "control: they still fall"


def test_memory_that_grows_counts_by_what_it_takes_of_a_step() -> None:
    def steps_of(seconds: float, segments: int) -> int:
        warming = WarmingUp({"segments": 0})
        for i in range(1, 40):
            if warming.over:
                break
            warming.step(seconds, {"segments": segments * min(i, 8)})
        return warming.steps

    assert steps_of(4.0, 10) == 4, "10 ms of 4 s"
    assert steps_of(0.3, 10) == 18, "10 ms of 300: it is warm ten steps behind the last"


@given(moving=st.integers(0, 4), quiet=st.integers(0, 12), seconds=st.floats(0.01, 8))
def test_so_many_steps_as_are_said_to_be_lacking_are_enough_and_no_fewer(
    moving: int, quiet: int, seconds: float
) -> None:
    """Steps behind which a counter moved, then level ones."""
    warming = WarmingUp({"compilations": 0})
    for step in range(moving + quiet):
        warming.step(seconds, {"compilations": min(step + 1, moving)})
    begun, lacking = warming.stationary, warming.lacking
    for _ in range(lacking - 1):
        warming.step(seconds, {"compilations": moving})
    if quiet or seconds <= 1:  # of long steps fewer are enough, which is not known before the first
        assert warming.stationary == begun
    warming.step(seconds, {"compilations": moving})
    assert warming.stationary


def test_two_minutes_are_the_most() -> None:
    assert warmed([50.0] * 10).steps == 3


def test_steps_of_unlike_work_are_level_by_their_pace() -> None:
    warming = WarmingUp({})
    for i in range(10):
        tokens = 1000 * (1 + i)
        warming.step(tokens * 1e-4, {}, work=tokens)
    assert warming.stationary


@given(st.lists(st.floats(0.1, 10), max_size=9))
def test_few_steps_are_never_level(seconds: list[float]) -> None:
    assert not level(seconds)


@given(st.lists(st.floats(0.1, 10), min_size=10, max_size=30), st.floats(0.5, 2))
def test_the_unit_of_time_does_not_matter(seconds: list[float], unit: float) -> None:
    close = [s * 1024.0 for s in seconds]
    assert level(seconds) == level(close)


def test_a_shift_counts_only_beyond_two_per_cent_or_the_noise_of_the_steps_before() -> None:
    assert level([1.0] * 5 + [1.019] * 5)
    assert not level([1.0] * 5 + [1.021] * 5)
    noisy = [1.0, 1.1, 0.9, 1.05, 0.95]
    assert level(noisy + [s + 0.1 for s in noisy])
    assert not level(noisy + [s + 0.4 for s in noisy])


def test_a_fall_is_not_taken_for_noise() -> None:
    """About their median the steps before deviate by 0.08, and a fall of 0.19 would be within three of that."""
    assert not level([1.5, 1.4, 1.32, 1.256, 1.2048, 1.16384, 1.131072, 1.1048576, 1.08388608, 1.067108864])


def test_counters_that_appear_fall_or_rise_have_moved() -> None:
    before = {"compilations": 2, "retries": 3, "segments": 7}
    assert moved(before, {"compilations": 4, "retries": 0, "segments": 7, "graph_captures": 1, "workers": 0}) == {
        "compilations": 2,
        "retries": 3,
        "graph_captures": 1,
    }
    assert in_words({"compilations": 2, "retries": 1, "odd": 3}) == "2 compilations, 1 retry of the allocator, 3 odd"
    assert in_words({}) == ""


def test_break_even() -> None:
    assert pays_back_after(37.0, 0.4, 1.4) == pytest.approx(37)
    assert pays_back_after(-1.0, 0.4, 1.4) == 0
    assert pays_back_after(37.0, 1.4, 0.4) is None
    assert pays_back_after(37.0, 1.0, 1.0) is None
