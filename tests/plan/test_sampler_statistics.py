"""Promise: the random order is uniform: no row prefers a place, and epochs do not resemble one another."""

import numpy as np
import pytest
from scipy import stats

from dynotune.plan.sampler import epoch_order

pytestmark = pytest.mark.long


def test_every_row_takes_every_place_equally_often() -> None:
    rows, epochs = 20, 20_000
    counts = np.zeros((rows, rows), np.int64)
    for epoch in range(epochs):
        counts[np.arange(rows), epoch_order(rows, epoch, 7, "random")] += 1
    assert stats.chisquare(counts.ravel()).pvalue > 1e-4
    biased = counts.copy()
    biased[0] += np.linspace(-250, 250, rows).astype(np.int64)  # negative control: one row that drifts is seen
    assert stats.chisquare(biased.ravel(), np.full(rows * rows, biased.sum() / rows**2)).pvalue < 1e-4


def test_neighbouring_seeds_and_epochs_are_unrelated() -> None:
    rows = 2_000
    orders = [epoch_order(rows, epoch, seed, "random") for seed in range(6) for epoch in range(6)]
    correlations = [np.corrcoef(a, b)[0, 1] for i, a in enumerate(orders) for b in orders[:i]]
    assert np.abs(correlations).max() < 5 / np.sqrt(rows)
