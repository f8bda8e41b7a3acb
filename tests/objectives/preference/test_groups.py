"""Promise: a step's groups and tails follow from its pairs alone, and are those that TRL's batches and masks give."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynotune.objectives.preference.groups import group_sizes, in_tail, token_shares


@given(pairs=st.integers(0, 50), size=st.integers(1, 9))
def test_groups_are_batches_in_order(pairs: int, size: int) -> None:
    assert group_sizes(pairs, size) == tuple(len(batch) for batch in torch.arange(pairs).split(size) if len(batch))


@given(lengths=st.lists(st.integers(0, 20), max_size=12), size=st.integers(1, 5), seed=st.integers(0, 99))
def test_shares_make_the_mean_over_a_groups_tokens(lengths: list[int], size: int, seed: int) -> None:
    drawn = np.random.default_rng(seed)
    per_token = [drawn.random(length) for length in lengths]
    sums = np.array([one.sum() for one in per_token])
    shares = token_shares(np.array(lengths, np.int64), size)
    assert len(shares) == len(lengths)
    for start in range(0, len(lengths), size):
        group = slice(start, start + size)
        tokens = np.concatenate(per_token[group])
        expected = tokens.mean() if len(tokens) else 0.0
        assert (sums[group] * shares[group]).mean() == pytest.approx(expected)


@given(pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=5), seed=st.integers(0, 99))
def test_tails_are_behind_the_shorter_answer(pairs: list[tuple[int, int]], seed: int) -> None:
    """In any interleaving of the sequences."""
    lengths = np.array([length for pair in pairs for length in pair], np.int64)
    sequences = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(lengths)), lengths))
    behind = in_tail(sequences, lengths)
    for sequence, length in enumerate(lengths):
        shorter = min(length, lengths[sequence ^ 1])
        assert behind[sequences == sequence].tolist() == [False] * shorter + [True] * (length - shorter)


def test_tails_without_order_would_show() -> None:
    """Negative control: tokens counted over the whole batch instead of within their sequence are other ones."""
    sequences, lengths = np.array([0, 0, 0, 1]), np.array([3, 1])
    assert in_tail(sequences, lengths).tolist() == [False, True, True, False]
    assert (np.arange(4) >= 1).tolist() != in_tail(sequences, lengths).tolist()
