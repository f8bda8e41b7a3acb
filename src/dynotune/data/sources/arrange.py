"""Examples in another order, or in two parts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dynotune.data.account.ledger import Ledger, count_labels
from dynotune.data.examples import IGNORE, Examples
from dynotune.errors import DataError

HELD_OUT = "held-out"
"""Ledger of the training data: a row that went to the evaluation data (`test_split_size`)."""


def take(examples: Examples, rows: NDArray[np.int64]) -> Examples:
    """The examples at these indices, in this order."""
    return Examples.from_list(examples[int(row)] for row in rows)


def shuffle(examples: Examples, seed: int, max_length: int | None, truncation_mode: str) -> Examples:
    """The order of TRL's `shuffle_dataset` (`datasets.Dataset.shuffle(seed)`).

    TRL shuffles after truncating and after dropping what truncation left without labels, and the permutation depends on
    the number of rows. So the rows that will be dropped are set apart first; they come last.
    """
    start, end = examples.offsets[:-1], examples.offsets[1:]
    if max_length is not None and truncation_mode == "keep_start":
        end = np.minimum(end, start + max_length)
    elif max_length is not None:
        start = np.maximum(start, end - max_length)
    labelled_before = np.concatenate([[0], np.cumsum(examples.labels != IGNORE)])
    survives = labelled_before[end] > labelled_before[start]
    kept = np.flatnonzero(survives)
    order = np.random.default_rng(seed).permutation(len(kept))
    return take(examples, np.concatenate([kept[order], np.flatnonzero(~survives)]))


def hold_out(examples: Examples, ledger: Ledger, size: float, seed: int) -> tuple[Examples, Examples, Ledger]:
    """(training examples, held-out examples, ledger of the held-out ones).

    The choice and both orders are those of `datasets.Dataset.train_test_split(size, seed=seed)`: a share below 1 is
    rounded up. (TRL calls it without a seed, so its choice differs from run to run.) In `ledger` the rows are moved to
    `held-out`. Raises `DataError` if no row would be left to train on.
    """
    n_rows = len(examples)
    n_test = math.ceil(size * n_rows) if size < 1 else int(size)
    if n_test >= n_rows or (size >= 1 and size != n_test):
        raise DataError(
            f"test_split_size: {size:g} of {n_rows:,} rows cannot be held out. "
            "Give a share below 1, or a whole number of rows smaller than that."
        )
    order = np.random.default_rng(seed).permutation(n_rows)
    held_out = take(examples, order[:n_test])
    own = Ledger()
    for index in range(len(held_out)):
        example = held_out[index]
        ledger.skip(HELD_OUT, example.place, len(example.ids_T), count_labels(example))
        own.read(example.place)
        own.use(example.place, [example])
    return take(examples, order[n_test:]), held_out, own
