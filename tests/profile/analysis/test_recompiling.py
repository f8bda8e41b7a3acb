"""Promise: a program that torch.compile makes again and again, or gave up, is not called clean; one that it made once is."""

from dataclasses import replace

import pytest

from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.records.record import Record, WarmUp
from tests.profile.made import record


def warmed(*compiled: int, **more: int) -> Record:
    return replace(record(), warm_up=WarmUp(20, 1.0, compiled=compiled, **more))


def test_a_function_that_was_given_up_is_a_finding_with_its_limit() -> None:
    (found,) = analyse(replace(warmed(*range(1, 8), limits_met=1, limit=8), trainer="torch")).found
    assert found.name == "compile-limit"
    assert "gave up a function" in found.sentence
    assert "its limit of 8 graphs" in found.sentence
    assert found.remedy is not None
    assert "dynamic=True" in found.remedy.text


def test_graphs_in_many_steps_of_the_warm_up_are_a_finding() -> None:
    (found,) = analyse(warmed(1, 2, 4, 7, 9)).found
    assert (found.name, found.seconds) == ("recompiling", 0.0)
    assert "in 5 of 20 steps while it warmed up" in found.sentence


@pytest.mark.parametrize("compiled", [(), (1,), (1, 2), (1, 2, 3, 4)])
def test_graphs_that_are_made_once_and_again_for_sizes_that_change_are_none(compiled: tuple[int, ...]) -> None:
    """The control."""
    assert analyse(warmed(*compiled, limit=8)).clean
