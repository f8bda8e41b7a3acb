"""Promise: training windows hold all the time between their ends but evaluations and checkpoints."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynotune.measure import clock as module
from dynotune.measure.clock import WindowClock
from dynotune.measure.wall import Kind, wall


class Hands:
    """A clock that is set by hand."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(module, "time", hands)
    return hands


def test_windows_follow_each_other_without_a_gap(hands: Hands) -> None:
    clock = WindowClock(torch.device("cpu"))
    ends, seconds = (2.0, 3.5, 3.5, 10.0), []
    for hands.now in ends:
        seconds.append(clock.window().seconds())
    assert seconds == [2.0, 1.5, 0.0, 6.5]


def test_what_is_stopped_does_not_count(hands: Hands) -> None:
    clock = WindowClock(torch.device("cpu"))
    hands.now = 2.0
    clock.stop()
    hands.now = 10.0
    clock.start()
    hands.now = 13.0
    clock.stop()
    hands.now = 14.0
    clock.start()
    hands.now = 14.5
    assert clock.window().seconds() == 2.0 + 3.0 + 0.5


def test_a_window_may_be_closed_while_the_clock_is_stopped(hands: Hands) -> None:
    """As the loop does before an evaluation: the evaluation belongs to neither window."""
    clock = WindowClock(torch.device("cpu"))
    hands.now = 4.0
    clock.stop()
    hands.now = 5.0
    before = clock.window()
    hands.now = 9.0
    clock.start()
    hands.now = 11.0
    after = clock.window()
    assert (before.seconds(), after.seconds()) == (4.0, 2.0)


def test_a_window_that_is_read_late_says_the_same(hands: Hands) -> None:
    clock = WindowClock(torch.device("cpu"))
    hands.now = 4.0
    window = clock.window()
    hands.now = 100.0
    clock.window()
    assert window.seconds() == 4.0


def test_a_clock_is_not_stopped_twice(hands: Hands) -> None:
    clock = WindowClock(torch.device("cpu"))
    clock.stop()
    with pytest.raises(AssertionError):
        clock.stop()


def test_every_second_has_one_kind_and_each_step_its_own(hands: Hands) -> None:
    clock = WindowClock(torch.device("cpu"))
    for hands.now, kind in ((1.0, Kind.FORWARD_BACKWARD), (4.0, Kind.OPTIMIZER)):
        clock.enter(kind)
    hands.now = 5.0
    clock.step_end()
    hands.now = 7.0
    first = clock.window()
    hands.now = 8.0
    with clock.within(Kind.EVALUATION):
        hands.now = 18.0
    clock.enter(Kind.FORWARD_BACKWARD)
    hands.now = 20.0
    clock.step_end()
    second = clock.window()
    assert first.steps() == ([{"host": 1.0, "forward_backward": 3.0, "optimizer": 1.0}], {"host": 2.0})
    assert second.steps()[0] == [{"host": 1.0, "evaluation": 10.0, "forward_backward": 2.0}]
    assert wall(first.account()) + wall(second.account()) == 20.0
    assert (first.seconds(), second.seconds()) == (7.0, 3.0)


def test_what_is_taken_again_is_lost_and_what_was_no_wait_is_taken_back(hands: Hands) -> None:
    clock = WindowClock(torch.device("cpu"))
    clock.enter(Kind.FORWARD_BACKWARD)
    hands.now = 2.0
    clock.lost()
    clock.enter(Kind.FORWARD_BACKWARD)
    clock.give_back(clock.now())
    hands.now = 5.0
    clock.step_end()
    assert clock.window().account() == {"host": 0.0, "lost": 2.0, "forward_backward": 3.0}


def test_a_wait_stands_between_what_goes_on(hands: Hands) -> None:
    clock = WindowClock(torch.device("cpu"))
    clock.enter(Kind.FORWARD_BACKWARD)
    hands.now = 2.0
    asked = clock.now()
    hands.now = 3.0
    clock.between(asked, Kind.DATA_WAIT)
    hands.now = 5.0
    clock.step_end()
    assert clock.window().account() == {"host": 0.0, "forward_backward": 4.0, "data_wait": 1.0}


def test_one_mark_says_how_long_was_waited_ahead_of_it(hands: Hands) -> None:
    """A device that was done with the step before only meanwhile has waited since then."""
    clock = WindowClock(torch.device("cpu"))
    hands.now = 5.0
    clock.enter_behind(Kind.DATA_WAIT, 2.0, Kind.FORWARD_BACKWARD)
    hands.now = 6.0
    clock.step_end()
    hands.now = 7.0
    clock.enter_behind(Kind.DATA_WAIT, 4.0, Kind.FORWARD_BACKWARD)
    hands.now = 8.0
    clock.step_end()
    steps, _ = clock.window().steps()
    assert steps[0] == {"host": 3.0, "data_wait": 2.0, "forward_backward": 1.0}
    assert steps[1] == {"host": 0.0, "data_wait": 1.0, "forward_backward": 1.0}


@given(st.lists(st.tuples(st.sampled_from([*Kind]), st.floats(0, 10)), max_size=30))
def test_no_second_is_left_out_whatever_happens(stretches: list[tuple[Kind, float]]) -> None:
    hands, real = Hands(), module.time
    module.time = hands  # type: ignore[attr-defined]
    try:
        clock, accounts, steps = WindowClock(torch.device("cpu")), [], 0.0
        for i, (kind, seconds) in enumerate(stretches):
            clock.enter(kind)
            hands.now += seconds
            if i % 3 == 2:
                clock.step_end()
            if i % 5 == 4:
                window = clock.window()
                accounts.append(window.account())
                each, behind = window.steps()
                steps += sum(map(wall, each)) + wall(behind)
        window = clock.window()
        accounts.append(window.account())
        assert sum(map(wall, accounts)) == pytest.approx(hands.now)
        assert steps + wall(window.account()) == pytest.approx(hands.now)
    finally:
        module.time = real  # type: ignore[attr-defined]
