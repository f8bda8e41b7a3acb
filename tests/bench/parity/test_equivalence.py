"""Promise: trajectories are called equal only where their mean gap is shown to be small, never for want of evidence."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dynotune.bench.parity.equivalence import block_means, equivalent, margin_of


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=20, unique=True), st.floats(0.01, 1))
def test_it_is_two_one_sided_t_tests(gaps: list[float], margin: float) -> None:
    found = equivalent(gaps, margin)
    above = stats.ttest_1samp(gaps, -margin, alternative="greater").pvalue
    below = stats.ttest_1samp(gaps, margin, alternative="less").pvalue
    assert found.p == pytest.approx(max(above, below), abs=1e-6)
    if abs(found.p - 0.05) > 1e-6:
        assert found.equal == (found.p < 0.05)


def test_a_small_gap_with_a_large_t_is_equal_and_a_large_one_with_a_small_t_is_not() -> None:
    """The two rows of the table in the protocol that a test for a difference gets wrong."""
    rounding = [4e-6 + 1e-6 * (-1) ** i for i in range(6)]
    assert stats.ttest_1samp(rounding, 0).pvalue < 1e-3
    assert equivalent(rounding, 0.01).equal
    mistake = [0.03, -0.02, 0.025, -0.015, 0.03, -0.02]
    assert stats.ttest_1samp(mistake, 0).pvalue > 0.3
    assert not equivalent(mistake, 0.01).equal


def test_little_evidence_is_no_equality() -> None:
    assert not equivalent([0.009, -0.009], 0.01).equal
    assert equivalent([0.0, 0.0], 0.01).equal
    assert not equivalent([0.02, 0.02], 0.01).equal
    assert not equivalent([0.0, math.nan, 0.0], 0.01).equal
    assert not equivalent([0.0, math.inf, 0.0], 0.01).equal


def test_means_take_in_every_step() -> None:
    values = list(np.arange(65.0))
    means = block_means(values)
    assert len(means) == 6
    assert means[0] == 4.5
    assert means[-1] == np.mean(values[50:])
    assert block_means([1.0, 3.0]) == [2.0]
    assert block_means([]) == []


def test_the_margin_is_half_a_per_cent_of_the_loss_or_what_reordered_sums_do() -> None:
    assert margin_of([2.0, 4.0], []) == 0.015
    assert margin_of([2.0, 4.0], [0.001] * 20) == 0.015
    assert margin_of([2.0, 4.0], [-0.1] * 20) == pytest.approx(0.3)
