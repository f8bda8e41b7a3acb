"""Promise: training windows hold all the time between their ends but evaluations and checkpoints."""

import pytest
import torch

from dynotune.measure import clock as module
from dynotune.measure.clock import WindowClock


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
