"""Promise: both blocks of a pair hold the same examples, also where one arm's steps hold more of them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.bench.running.spans import Shape, Spans, enough_steps


def examples_of(shape: Shape, first: int, steps: int) -> range:
    """The places in the epoch that these steps cover."""
    return range((first - 1) * shape.examples, (first - 1 + steps) * shape.examples)


@settings(max_examples=200)
@given(
    st.lists(st.integers(1, 32), min_size=2, max_size=4),
    st.integers(200, 5000),
    st.integers(1, 10),
    st.integers(1, 50),
    st.integers(0, 30),
)
def test_blocks_of_a_pair_cover_the_same_examples(
    batches: list[int], rows: int, steps_a_block: int, begin: int, number: int
) -> None:
    shapes = {str(i): Shape(b, -(-rows // b), packs=False, tokens=100.0 * b) for i, b in enumerate(batches)}
    spans = Spans(shapes, steps_a_block, begin)
    assert spans.same_documents
    covered = {examples_of(shapes[name], *spans.of(name, number)) for name in shapes}
    assert len(covered) == 1
    (block,) = covered
    assert len(block) >= steps_a_block * max(batches)
    assert block.start >= begin * max(batches)


@given(st.integers(1, 32), st.integers(1, 20), st.integers(0, 40))
def test_blocks_lie_in_the_first_epoch_where_it_has_room(batch: int, begin: int, number: int) -> None:
    steps = begin + 100
    spans = Spans({"a": Shape(batch, steps, False, 1.0), "b": Shape(batch, steps, False, 1.0)}, 5, begin)
    first, count = spans.of("a", number)
    assert begin < first
    assert first + count - 1 < steps, "the last step of an epoch may be short"


def test_neighbouring_blocks_hold_other_documents() -> None:
    spans = Spans({"a": Shape(8, 1000, False, 1.0), "b": Shape(8, 1000, False, 1.0)}, 5, 10)
    taken = [spans.of("a", number)[0] for number in range(20)]
    assert len(set(taken)) == 20


def test_packed_rows_are_matched_by_their_tokens() -> None:
    spans = Spans({"a": Shape(8, 1000, False, 500.0), "bins": Shape(8, 100, True, 5000.0)}, 20, 10)
    assert not spans.same_documents
    assert spans.of("a", 0)[1] == 20
    assert spans.of("bins", 0)[1] == 2


def test_a_block_of_no_arm_is_shorter_than_half_a_second() -> None:
    """Neighbours have too much in common there: `tests/bench/test_false_calls.py`."""
    small, large = Shape(4, 1000, False, 400.0), Shape(16, 250, False, 1600.0)
    assert enough_steps({"a": small, "b": small}, {"a": 0.0189, "b": 0.01}, 5, 0.5) == 50
    assert enough_steps({"a": small, "b": small}, {"a": 0.6, "b": 0.3}, 5, 0.5) == 5
    assert enough_steps({"a": small, "b": large}, {"a": 0.01, "b": 0.1}, 5, 0.5) == 13, "four steps of a each"
    bins = Shape(8, 100, True, 4000.0)
    assert enough_steps({"a": small, "bins": bins}, {"a": 0.01, "bins": 0.05}, 5, 0.5) == 100, (
        "ten steps of a each of bins"
    )


@given(
    st.lists(st.tuples(st.integers(1, 32), st.floats(1e-3, 2)), min_size=1, max_size=4),
    st.integers(1, 20),
)
def test_every_arm_fills_its_half_second(arms: list[tuple[int, float]], steps: int) -> None:
    shapes = {str(i): Shape(examples, 100_000, False, 1.0) for i, (examples, _) in enumerate(arms)}
    seconds = {str(i): each for i, (_, each) in enumerate(arms)}
    found = enough_steps(shapes, seconds, steps, 0.5)
    spans = Spans(shapes, found, 0)
    assert found >= steps
    assert all(spans.of(name, 0)[1] * seconds[name] >= 0.5 * (1 - 1e-9) for name in shapes)
