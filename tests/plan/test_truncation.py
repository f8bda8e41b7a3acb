"""Promise: `max_length` cuts what TRL cuts, and every token that is cut is counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.config.keys.data import DataConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.examples import IGNORE, Example, Examples
from dynotune.data.rows import BadRow, Place
from dynotune.errors import DataError
from dynotune.plan.make import check_vocabulary, rows_without_labels, trainable_spans
from dynotune.plan.truncation import truncate


def examples_of(labelled: list[list[bool]]) -> Examples:
    """Examples whose token at position t is t + 1, labelled where the flag is set."""
    made = []
    for row, flags in enumerate(labelled):
        ids = np.arange(1, len(flags) + 1, dtype=np.int32)
        made.append(Example(ids, np.where(flags, ids, IGNORE).astype(np.int32), Place("rows", row + 1)))
    return Examples.from_list(made)


def ledger_of(examples: Examples) -> Ledger:
    ledger = Ledger()
    for i in range(len(examples)):
        ledger.read(examples.places[i])
        ledger.use(examples.places[i], [examples[i]])
    return ledger


rows = st.lists(st.lists(st.booleans(), min_size=1, max_size=20), min_size=1, max_size=12)


@given(rows, st.integers(1, 24), st.sampled_from(["keep_start", "keep_end"]))
def test_spans_equal_a_slice_of_every_row(labelled: list[list[bool]], max_length: int, mode: str) -> None:
    examples = examples_of(labelled)
    spans = truncate(examples, max_length, mode)
    for i in range(len(examples)):
        cut = slice(None, max_length) if mode == "keep_start" else slice(-max_length, None)
        kept = examples[i].labels_T[cut]
        assert np.array_equal(examples.labels[spans.start[i] : spans.end[i]], kept)
        assert spans.label_tokens[i] == np.count_nonzero(kept[1:] != IGNORE)  # the first has no predecessor
        assert spans.cut_tokens[i] == len(examples[i].ids_T) - len(kept)


@given(rows, st.integers(2, 24), st.sampled_from(["keep_start", "keep_end"]))
def test_the_ledger_accounts_for_every_token_of_a_truncated_data_set(
    labelled: list[list[bool]], max_length: int, mode: str
) -> None:
    examples = examples_of(labelled)
    ledger = ledger_of(examples)
    config = DataConfig(max_length=max_length, truncation_mode=mode, on_bad_row="skip")  # type: ignore[arg-type]
    refused: list[BadRow] = []
    if not truncate(examples, max_length, mode).label_tokens.any():
        with pytest.raises(DataError, match="No row"):
            trainable_spans(examples, config, ledger, refused.append)
        return
    spans, kept = trainable_spans(examples, config, ledger, refused.append)
    ledger.check()
    assert ledger.rows_used == len(kept)
    assert ledger.tokens_used == spans.lengths[kept].sum()
    assert ledger.label_tokens == spans.label_tokens[kept].sum()
    assert len(refused) == len(examples) - len(kept) == ledger.skipped.total()


def test_a_row_that_loses_its_last_label_is_left_out_counted_listed_and_said() -> None:
    examples = examples_of([[True] * 4, [False] * 6 + [True]])
    ledger, config, refused = ledger_of(examples), DataConfig(max_length=4), list[BadRow]()
    _, kept = trainable_spans(examples, config, ledger, refused.append)
    assert kept.tolist() == [0]
    assert ledger.skipped == {"no-labels-after-truncation": 1}
    assert [str(bad.place) for bad in refused] == ["rows:2"]
    assert "1 row has no label token left under `max_length: 4`" in str(rows_without_labels(ledger, config))
    assert rows_without_labels(ledger_of(examples), config) is None


def test_a_row_whose_last_label_is_on_its_first_token_is_told_apart() -> None:
    """TRL keeps it, without loss: its steps then hold other rows, and "TRL leaves them out too" would be untrue."""
    examples = examples_of([[True] * 4, [True, *[False] * 4, True]])
    ledger, config, refused = ledger_of(examples), DataConfig(max_length=3), list[BadRow]()
    _, kept = trainable_spans(examples, config, ledger, refused.append)
    assert kept.tolist() == [0]
    assert ledger.skipped == {"only-first-label-after-truncation": 1}
    assert [bad.reason for bad in refused] == ["only-first-label-after-truncation"]
    said = str(rows_without_labels(ledger, config))
    assert "a label on the first token alone" in said
    assert "TRL keeps them" in said
    assert "TRL leaves them out too" not in said


def test_a_data_set_that_loses_every_label_is_an_error() -> None:
    examples = examples_of([[False] * 6 + [True]] * 2)
    with pytest.raises(DataError, match=r"max_length: 4.*Raise"):
        trainable_spans(examples, DataConfig(max_length=4), ledger_of(examples), None)


def test_a_token_id_beyond_the_embedding_is_found_before_training() -> None:
    examples = examples_of([[True] * 3, [True] * 7])
    check_vocabulary(examples, 8)
    with pytest.raises(DataError, match=r"rows:2 holds token id 7.*7 rows"):
        check_vocabulary(examples, 7)
