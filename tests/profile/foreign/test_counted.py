"""Promise: tokens of a script that reports none are counted from its batches, and never guessed."""

from dataclasses import replace

import pytest

from dynotune.errors import DataError
from dynotune.profile.foreign.counted import Counted, count_of
from tests.profile.made import record, timed


def test_real_tokens_and_seconds_of_the_timed_steps() -> None:
    steps = timed(0.5, steps=4, real_tokens=900, processed_tokens=1000)
    assert count_of(record(timed=steps)) == Counted(tokens=3600, seconds=2.0, steps=4, processed_tokens=4000)
    labelled = (*steps[:3], replace(steps[3], label_tokens=5))
    assert count_of(record(timed=labelled)).label_tokens is None
    assert count_of(record(timed=labelled[3:])).label_tokens == 5


def test_what_one_batch_does_not_tell_is_not_guessed() -> None:
    steps = timed(0.5, steps=4, real_tokens=900)
    unknown = (*steps[:3], replace(steps[3], real_tokens=None))
    with pytest.raises(DataError, match="do not tell which tokens are padding"):
        count_of(record(timed=unknown))


def test_the_batches_of_one_rank_are_not_those_of_the_step() -> None:
    one = record(timed=timed(0.5, real_tokens=900))
    with pytest.raises(DataError, match="2 ranks share the steps"):
        count_of(replace(one, environment=replace(one.environment, world=2)))
