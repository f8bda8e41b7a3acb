"""Promise: `shuffle_dataset` gives TRL's order, whatever truncation leaves out before it."""

import numpy as np
import pytest
from datasets import Dataset

from dynotune.config.keys.data import DataConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.examples import IGNORE, Example, Examples
from dynotune.data.rows import Place
from dynotune.plan.make import trainable_spans

LENGTHS = [3, 9, 4, 12, 5, 6, 20, 3]


def answers_last(labels_first: bool = False) -> Examples:
    """Rows of LENGTHS context tokens and two labelled ones; with `labels_first` the first token has a label too."""
    made = []
    for line, length in enumerate(LENGTHS, 1):
        ids = np.arange(length + 2, dtype=np.int32)
        labels = np.where(ids < length, IGNORE, ids).astype(np.int32)
        if labels_first:
            labels[0] = 0
        made.append(Example(ids, labels, Place("rows", line)))
    return Examples.from_list(made)


def order(examples: Examples, mode: str, seed: int | None) -> list[int]:
    ledger = Ledger()
    for index in range(len(examples)):
        ledger.read(examples.places[index])
        ledger.use(examples.places[index], [examples[index]])
    config = DataConfig(max_length=6, truncation_mode=mode)  # type: ignore[arg-type]
    return trainable_spans(examples, config, ledger, None, shuffle_seed=seed)[1].tolist()


@pytest.mark.parametrize("mode", ["keep_start", "keep_end"])
def test_shuffling_is_trls_also_where_truncation_drops_rows(mode: str) -> None:
    """TRL shuffles what truncation left, and a permutation depends on how many rows there are."""
    kept = [row for row, length in enumerate(LENGTHS) if mode == "keep_end" or length < 6]
    assert order(answers_last(), mode, None) == kept
    assert order(answers_last(), mode, 42) == list(Dataset.from_list([{"n": n} for n in kept]).shuffle(seed=42)["n"])


def test_a_row_that_trl_keeps_and_that_carries_no_loss_takes_part_in_the_permutation() -> None:
    theirs = list(Dataset.from_list([{"n": n} for n in range(len(LENGTHS))]).shuffle(seed=42)["n"])
    assert order(answers_last(labels_first=True), "keep_start", 42) == [row for row in theirs if LENGTHS[row] < 6]
