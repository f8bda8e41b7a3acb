"""Promise: micro-batches are as large as asked, or as is usual; the longest document always fits, and why is said."""

from hypothesis import given
from hypothesis import strategies as st

from dynotune.estimate.capacity import micro_batch_capacity
from dynotune.plan.ladder import round_down, round_up


@given(st.integers(64, 40_000) | st.none(), st.integers(1, 40_000), st.sampled_from(["cpu", "cuda"]))
def test_the_longest_document_always_fits(asked: int | None, longest: int, device: str) -> None:
    capacity = micro_batch_capacity(asked, longest, device)
    assert capacity.tokens >= longest
    if asked is not None:
        assert capacity.tokens == max(asked, round_up(longest)) or round_up(longest) <= asked == capacity.tokens


def test_what_is_asked_is_taken_and_raised_by_a_longer_document_which_is_said() -> None:
    assert micro_batch_capacity(4096, 1000, "cuda").tokens == 4096
    raised = micro_batch_capacity(4096, 5000, "cuda")
    assert raised.tokens == 5120
    assert "5,000" in raised.why
    assert "4,096" in raised.why


def test_a_ladder_below_what_was_asked_is_not_said_to_be_as_asked() -> None:
    asked = micro_batch_capacity(100_000, 500, "cpu")
    assert asked.why_of(8192) == "no step of this run holds more"
    odd = micro_batch_capacity(5000, 500, "cpu")  # rounded down to a rung, which is no reason
    assert odd.why_of(round_down(5000)) == "as asked"
    assert micro_batch_capacity(None, 500, "cpu").why_of(2048) == "the default on the CPU"


def test_defaults() -> None:
    assert micro_batch_capacity(None, 1000, "cpu").tokens == 2048
    assert micro_batch_capacity(None, 3000, "cpu").tokens == 3008
    assert micro_batch_capacity(None, 1000, "cuda").tokens == 16_384
    assert micro_batch_capacity(None, 20_000, "cuda").tokens == round_up(20_000)
