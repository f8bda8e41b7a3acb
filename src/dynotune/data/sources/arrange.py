"""Examples in two parts: what is trained on, and what is held out."""

from __future__ import annotations

import math

import numpy as np

from dynotune.data.account.ledger import Ledger
from dynotune.data.examples import Examples
from dynotune.errors import DataError

HELD_OUT = "held-out"
"""Ledger of the training data: a row that went to the evaluation data (`test_split_size`)."""


def hold_out(examples: Examples, ledger: Ledger, size: float, seed: int) -> tuple[Examples, Examples, Ledger]:
    """(training examples, held-out examples, ledger of the held-out ones).

    The choice and both orders are those of `datasets.Dataset.train_test_split(size, seed=seed)`: a share below 1 is
    rounded up. (TRL calls it without a seed, so its choice differs from run to run.) Pairs stay whole. In `ledger` the
    rows are moved to `held-out`. Raises `DataError` if no row would be left to train on.
    """
    n_rows = examples.rows
    n_test = math.ceil(size * n_rows) if size < 1 else int(size)
    if n_test >= n_rows or (size >= 1 and size != n_test):
        raise DataError(
            f"test_split_size: {size:g} of {n_rows:,} rows cannot be held out. "
            "Give a share below 1, or a whole number of rows smaller than that."
        )
    order = np.random.default_rng(seed).permutation(n_rows)
    held_out = examples.take_rows(order[:n_test])
    labels = held_out.label_counts(np.minimum(held_out.starts + 1, held_out.ends), held_out.ends)
    places, n_tokens, n_labels = held_out.places_of_rows, held_out.by_row(held_out.lengths), held_out.by_row(labels)
    ledger.skip(HELD_OUT, places, n_tokens, n_labels)
    own = Ledger()
    own.use_rows(places, n_tokens, n_labels)
    return examples.take_rows(order[n_test:]), held_out, own
