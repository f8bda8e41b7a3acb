"""Promise: what watching cost is known, and said where it is much."""

from dynotune.profile.foreign.as_record import cost_of_watching, record_of

STEPS = [{"number": i, "seconds": 0.01} for i in range(5)]


def test_the_cost_is_a_share_of_a_timed_step_and_noted_where_it_is_much() -> None:
    observed = {"trainer": "torch", "timed": STEPS, "traced": [], "foreign": {"own_seconds": 2e-4}}
    assert cost_of_watching(observed) == (2e-4, 2e-4 / 0.01)
    assert "200 microseconds for each timed step, 2.0% of its length" in record_of(("python",), [observed], ()).notes[0]
    little = {**observed, "foreign": {"own_seconds": 2e-5}}
    assert record_of(("python",), [little], ()).notes == ()
    assert cost_of_watching({"only_timed": "old", "seconds": [1.0]}) is None
