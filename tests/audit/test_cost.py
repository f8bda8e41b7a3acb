"""Promise: seconds are of this run where its time is known; gains are never summed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.audit.cost import cost_of, shares, together
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.run import RunFacts
from dynotune.audit.finding import AtStake, Risk
from tests.audit.made_up import a_finding


def test_seconds_an_epoch_come_from_a_run() -> None:
    rows = [{"step": i, "seconds_per_step": 30.0 if i < 3 else 2.0} for i in range(1, 9)]
    cost = cost_of(Project(".", runs=[RunFacts("runs/a", "Dynotune", rows, plan={"steps_per_epoch": 100})]))
    assert cost.epoch_seconds == 200
    assert cost.seconds(a_finding(low=0.1, high=0.2)) == (20, 40)


def test_and_from_transformers_last_row() -> None:
    rows = [{"step": 50, "epoch": 0.5, "loss": 1.0}, {"step": 50, "epoch": 0.5, "train_runtime": 100.0}]
    assert cost_of(Project(".", runs=[RunFacts("out", "transformers", rows)])).epoch_seconds == 200


def test_without_a_run_nothing_is_known_and_nothing_is_said() -> None:
    cost = cost_of(Project("."))
    assert cost.epoch_seconds is None
    assert cost.seconds(a_finding()) is None
    assert shares(a_finding(what=AtStake.MEMORY)) is None
    assert together([a_finding(what=AtStake.RESULT)]) is None


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6))
def test_together_is_above_each_and_below_their_sum(values: list[float]) -> None:
    share = together([a_finding(f"OPT{i:03}", high=value) for i, value in enumerate(values)])
    assert share is not None
    assert max(values) - 1e-12 <= share <= min(1.0, sum(values)) + 1e-12


def test_a_rule_counts_once_and_changes_of_the_result_do_not() -> None:
    assert together([a_finding(high=0.2), a_finding(high=0.1)]) == pytest.approx(0.2)
    assert together([a_finding(high=0.2), a_finding("ATT001", high=0.5, risk=Risk.BEHAVIOURAL)]) == pytest.approx(0.2)
