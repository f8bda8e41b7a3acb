"""Promise: seconds only change their kind, never their sum, when it is known what a step was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.measure.wall import PRODUCTIVE, Kind, add, goodput, settled, share, times, training, wall

ACCOUNTS = st.dictionaries(st.sampled_from([str(kind) for kind in Kind]), st.floats(0, 1e3))


@given(ACCOUNTS, st.floats(0, 2e3), st.booleans(), st.booleans())
def test_a_step_keeps_its_seconds(account: dict[str, float], compiled: float, first: bool, kept: bool) -> None:
    found = settled(account, compiled, first=first, kept=kept)
    assert wall(found) == pytest.approx(wall(account))
    assert all(seconds >= 0 for seconds in found.values())
    if first or not kept:
        assert not any(found.get(kind) for kind in PRODUCTIVE)


def test_compilation_is_no_forward_pass() -> None:
    step = {"forward_backward": 10.0, "optimizer": 1.0, "data_wait": 2.0}
    later = settled(step, 4.0, first=False, kept=True)
    assert later == {"forward_backward": 6.0, "optimizer": 1.0, "data_wait": 2.0, "compile": 4.0}
    first = settled(step, 4.0, first=True, kept=True)
    assert first == {"data_wait": 2.0, "compile": 4.0, "first_step": 7.0}
    assert settled(step, 0.0, first=False, kept=False) == {"data_wait": 2.0, "lost": 11.0}


def test_goodput_and_shares() -> None:
    account: dict[str, float] = {}
    add(account, {Kind.FORWARD_BACKWARD: 6.0, Kind.OPTIMIZER: 1.0, Kind.DATA_WAIT: 1.0, Kind.EVALUATION: 2.0})
    assert (wall(account), training(account), goodput(account)) == (10.0, 8.0, 0.7)
    assert share(account, Kind.DATA_WAIT) == 0.125
    assert times(account) == {
        "time/forward_backward": 6.0, "time/optimizer": 1.0, "time/data_wait": 1.0, "time/evaluation": 2.0,
    }  # fmt: skip
    assert goodput({}) is None
