"""Promise: of all settings that fit the fastest is taken; none that does not fit, none below the longest document."""

from hypothesis import given
from hypothesis import strategies as st

from dynotune.estimate.capacity import SPARED
from dynotune.estimate.fastest import Measured, Question, Setting, question, relative_costs, try_out
from dynotune.plan.ladder import round_up

ALL = ["none", "selective", "full", "offload"]
A_TOKEN = {"none": 4_500_000, "selective": 3_000_000, "full": 500_000, "offload": 300_000}
FIXED = 2_000_000_000


def estimated(policy: str, tokens: int) -> int:
    return FIXED + A_TOKEN[policy] * tokens


def asked(free: int, longest: int = 1000, tokens: int | None = None, frozen: bool = True) -> Question:
    return question(free, estimated, relative_costs(ALL, frozen), longest, tokens, 16_384)


FREE = st.integers(0, 200_000_000_000)
LONGEST = st.integers(1, 40_000)


@given(FREE, LONGEST, st.booleans(), st.integers(64, 40_000) | st.none())
def test_it_fits_holds_the_longest_document_and_is_the_fastest(
    free: int, longest: int, frozen: bool, tokens: int | None
) -> None:
    one = asked(free, longest, tokens, frozen)
    found = one.fastest()
    if found is None:
        assert estimated("offload", one.least) > free * (1 - SPARED)
        assert one.smallest() == Setting("offload", one.least)
        return
    assert estimated(found.policy, found.tokens) <= free * (1 - SPARED)
    assert round_up(longest) <= found.tokens <= one.most
    for policy in ALL:
        for rung in (one.least, 2048, 4096, 8192, 16_384):
            if one.least <= rung <= one.most and estimated(policy, rung) <= one.limit():
                assert one.cost(found) <= one.cost(Setting(policy, rung))


@given(FREE, FREE, LONGEST)
def test_more_memory_is_never_slower(a: int, b: int, longest: int) -> None:
    less, more = (asked(free, longest) for free in sorted((a, b)))
    slow, fast = less.fastest(), more.fastest()
    if slow is not None:
        assert fast is not None
        assert more.cost(fast) <= less.cost(slow)


def test_micro_batches_get_smaller_before_anything_is_computed_again() -> None:
    gib = 1 << 30
    assert asked(120 * gib).fastest() == Setting("none", 16_384)
    smaller = asked(30 * gib).fastest()
    assert smaller is not None
    assert smaller.policy in ("none", "selective")
    assert 4096 < smaller.tokens < 16_384
    long = asked(30 * gib, longest=12_000).fastest()  # a document is never cut: layers are computed again
    assert long is not None
    assert long.policy == "full"


def test_what_is_asked_leaves_the_policy_to_be_chosen() -> None:
    assert asked(120 << 30, tokens=8192).fastest() == Setting("none", 8192)
    forced = asked(20 << 30, tokens=8192).fastest()
    assert forced is not None
    assert (forced.policy, forced.tokens) == ("full", 8192)


@given(FREE, LONGEST, st.floats(0.5, 2.0), st.booleans())
def test_trying_out_gives_only_what_was_seen_to_fit(free: int, longest: int, off: float, frozen: bool) -> None:
    """However wrong the estimate is, in either direction, and whoever else takes memory."""
    one, ran = asked(free, longest, frozen=frozen), []

    def truth(setting: Setting) -> int:
        return int(off * estimated(setting.policy, setting.tokens))

    def run(setting: Setting) -> Measured | None:
        ran.append(setting)
        assert one.least <= setting.tokens <= one.most
        return None if truth(setting) > free else Measured(truth(setting), truth(setting), 1.0)

    found = try_out(one, run)
    assert len(ran) == len(set(ran)) <= 5
    if found is not None:
        assert found in ran
        assert truth(found) <= one.limit()
    elif truth(one.smallest()) <= 0.5 * one.limit():
        raise AssertionError("something fits by far and was not found")


def test_an_estimate_that_is_too_high_is_found_out() -> None:
    one = asked(25 << 30)
    one.costs = {"none": 1.0}
    guess = one.fastest()
    assert guess is not None
    found = try_out(one, lambda s: Measured(estimated(s.policy, s.tokens) // 2, 0, 1.0))
    assert found is not None
    assert found.tokens > 1.3 * guess.tokens  # larger ones promise less than the fiftieth that another trial must gain
    again = one.fastest()
    assert again is not None
    assert one.cost(again) > 0.98 * one.cost(found)


def test_one_that_runs_out_is_not_tried_again_nor_anything_larger() -> None:
    one = asked(120 << 30)
    found = try_out(one, lambda s: None if s.tokens > 4096 and s.policy == "none" else Measured(1, 1, 1.0))
    assert found is not None
    assert one.tried[Setting("none", 16_384)] is None
    assert found.policy != "none" or found.tokens <= 4096
