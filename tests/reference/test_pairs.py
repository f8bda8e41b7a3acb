"""Promise: what changes a pair's log-probabilities changes its digest; what does not, does not."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.data.examples import Examples
from dynotune.data.pairs import Pairs
from dynotune.data.places import Places
from dynotune.reference.pairs import as_bytes, by_prompt, distinct, pair_digests
from tests.reference.pairs import many, pairs_of, taken

SIDES = st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 3))
PAIRS = st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=8)


@given(PAIRS)
@settings(max_examples=100, deadline=None)
def test_two_pairs_have_one_digest_exactly_if_tokens_and_masks_are_equal(pairs: list) -> None:
    digests = as_bytes(pair_digests(pairs_of(*pairs)))
    seen = [tuple((tuple(ids), min(prompt, len(ids))) for ids, prompt in pair) for pair in pairs]
    for i, one in enumerate(seen):
        for j, other in enumerate(seen):
            assert (digests[i] == digests[j]) == (one == other), (one, other)


@given(PAIRS, st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_truncation_makes_another_pair_and_only_of_those_that_it_cuts(pairs: list, most: int) -> None:
    """What poisons TRL's cache: its key lacks `max_length` and `truncation_mode`."""
    whole = pairs_of(*pairs)
    kept_end = Pairs(whole.examples, np.maximum(whole.start, whole.end - most), whole.end)
    cut = (whole.lengths > most).any(1)
    same = (pair_digests(whole) == pair_digests(kept_end)).all(1)
    assert (same == ~cut).all()


def test_the_order_of_the_pairs_and_of_other_rows_does_not_matter() -> None:
    pairs = many(20)
    order = np.random.default_rng(1).permutation(20)
    assert (pair_digests(taken(pairs, order)) == pair_digests(pairs)[order]).all()


def test_the_sides_are_not_interchangeable() -> None:
    a, b = ([1, 2, 3], 1), ([1, 4], 1)
    one, other = as_bytes(pair_digests(pairs_of((a, b), (b, a))))
    assert one != other


def test_each_distinct_pair_once() -> None:
    a, b, c = (([1, 2], 1), ([1, 3], 1)), (([1, 2], 0), ([1, 3], 1)), (([5], 0), ([6], 0))
    firsts, which = distinct(pair_digests(pairs_of(a, b, a, c, b)))
    assert firsts.tolist() == [0, 1, 3]
    assert which.tolist() == [0, 1, 0, 2, 1]


def test_equal_prompts_stand_together_and_the_rest_stays_in_order() -> None:
    one, other = ([1, 2, 3], 2), ([1, 2, 4, 5], 2)
    a, b, c = ([7, 8, 9], 2), ([7, 8, 6], 2), ([7, 5], 1)
    pairs = pairs_of((one, other), (a, b), (other, one), (c, c), (b, a))
    assert by_prompt(pairs).tolist() == [0, 2, 1, 4, 3]


def test_no_pairs() -> None:
    digests = pair_digests(pairs_of())
    assert digests.shape == (0, 16)
    assert distinct(digests)[0].shape == (0,)


@pytest.mark.long
def test_100_000_pairs_take_well_under_a_second() -> None:
    """A part of the two seconds in which a second run has its reference. Processor time: other things run here, too."""
    rows, length = 200_000, 200
    ids = np.arange(rows * length, dtype=np.int32)
    offsets = np.arange(rows + 1, dtype=np.int64) * length
    places = Places(["x"], np.zeros(rows, np.int32), np.arange(rows, dtype=np.int64))
    pairs = Pairs(Examples(ids, ids.copy(), offsets, places, per_example=2))
    seconds = []
    for _ in range(2):
        began = time.process_time()
        assert len(distinct(pair_digests(pairs))[0]) == 100_000
        seconds.append(time.process_time() - began)
    assert min(seconds) < 1.0
