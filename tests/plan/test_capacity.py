"""Promise: micro-batches are as large as asked, or as memory takes; the longest document always fits, and why is said."""

from hypothesis import given
from hypothesis import strategies as st

from dynotune.plan.capacity import SPARED, Room, micro_batch_capacity
from dynotune.plan.ladder import round_down, round_up


@given(
    st.integers(64, 40_000) | st.none(), st.integers(1, 40_000), st.sampled_from(["cpu", "cuda"]), st.integers(0, 10**9)
)
def test_the_longest_document_always_fits(asked: int | None, longest: int, device: str, free: int) -> None:
    capacity = micro_batch_capacity(asked, longest, device, Room(free, lambda tokens: 10_000 * tokens))
    assert capacity.tokens >= longest
    if asked is not None:
        assert capacity.tokens == max(asked, round_up(longest)) or round_up(longest) <= asked == capacity.tokens
    elif device == "cuda" and capacity.tokens > round_up(longest):
        assert 10_000 * capacity.tokens <= free * (1 - SPARED)


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
    assert micro_batch_capacity(None, 3000, "cpu").tokens == 3072
    assert micro_batch_capacity(None, 1000, "cuda").tokens == 16_384
    plenty = Room(10**12, lambda tokens: tokens)
    assert micro_batch_capacity(None, 1000, "cuda", plenty).tokens == 16_384
    assert micro_batch_capacity(None, 20_000, "cuda", plenty).tokens == round_up(20_000)


def test_little_memory_makes_smaller_micro_batches_and_too_little_is_said() -> None:
    room = Room(100_000_000, lambda tokens: 2_000_000 + 20_000 * tokens)
    fitting = micro_batch_capacity(None, 1000, "cuda", room)
    assert fitting.tokens == 4480  # (92 MB - 2 MB) / 20 kB = 4,500
    assert "estimated" in fitting.why
    assert "gradient_checkpointing" in micro_batch_capacity(None, 6000, "cuda", room).why
