"""From tokenised data to a plan: truncate, leave out what has no label left, and account for it in the ledger."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dynotune.config.keys.data import DataConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.examples import Examples
from dynotune.data.printable import beginning
from dynotune.data.rows import BadRow
from dynotune.errors import DataError
from dynotune.plan.shuffle import shuffled
from dynotune.plan.truncation import Spans, truncate

NO_LABELS_LEFT = "no-labels-after-truncation"


def trainable_spans(
    examples: Examples,
    config: DataConfig,
    ledger: Ledger,
    quarantine: Callable[[BadRow], None] | None,
    text_of: Callable[[NDArray[np.int32]], str] | None = None,
    shuffle_seed: int | None = None,
) -> tuple[Spans, NDArray[np.int64]]:
    """The used part of every example, and the indices [rows] of those that still have a label token, in order or
    (`shuffle_dataset`) in the order that `shuffle_seed` gives.

    A row that loses its last label to `max_length` is left out, as in TRL; here it is counted, listed in the quarantine and
    said. It is not a bad row: the setting makes it unusable, and another setting would not. Raises `DataError` where that
    leaves nothing.
    """
    spans = truncate(examples, config.max_length, config.truncation_mode)
    full = examples.lengths
    cut = np.flatnonzero(spans.cut_tokens)
    full_labels = truncate(examples, None, config.truncation_mode).label_tokens if len(cut) else spans.label_tokens
    cut = cut[spans.label_tokens[cut] > 0]
    ledger.truncate(examples.places.take(cut), spans.cut_tokens[cut], (full_labels - spans.label_tokens)[cut])
    empty = np.flatnonzero(spans.label_tokens == 0)
    if len(empty) and len(empty) == len(examples):
        raise DataError(
            f"No row of {examples.places[0].file} has a label token left under `max_length: {config.max_length}` with"
            f" `truncation_mode: {config.truncation_mode}`. Raise `max_length`."
        )
    ledger.skip(NO_LABELS_LEFT, examples.places.take(empty), full[empty], full_labels[empty])
    kept = spans.lengths_of(empty).tolist()
    for row, length in zip(empty.tolist(), kept, strict=True):
        if quarantine is None:
            break
        detail = f"no label token is left in the {length} of {full[row]} tokens that max_length keeps"
        start = text_of(examples[row].ids_T[:64]) if text_of else ""
        quarantine(BadRow(examples.places[row], NO_LABELS_LEFT, detail, beginning(start)))
    ledger.check()
    rows = np.flatnonzero(spans.label_tokens)
    return spans, rows if shuffle_seed is None else shuffled(examples, spans, rows, shuffle_seed)


def rows_without_labels(ledger: Ledger, config: DataConfig) -> str | None:
    """A sentence about the rows that `max_length` left without a label, where there are some."""
    lost = ledger.skipped[NO_LABELS_LEFT]
    if not lost:
        return None
    have, first = ("row has" if lost == 1 else "rows have"), ", ".join(ledger.places[NO_LABELS_LEFT][:3])
    return (
        f"{lost:,} {have} no label token left under `max_length: {config.max_length}` and will not train ({first}"
        f"{', ...' if lost > 3 else ''}); TRL leaves them out too. Raise `max_length` to train them"
    )


def check_vocabulary(examples: Examples, rows: int) -> None:
    """Every token id must have a row in the embedding: an id beyond it is a device-side fault hours into a run."""
    if len(examples.ids) and (int(examples.ids.max()) >= rows or int(examples.ids.min()) < 0):
        position = int(np.flatnonzero((examples.ids >= rows) | (examples.ids < 0))[0])
        place = examples.places[examples.row_of(position)]
        raise DataError(
            f"{place} holds token id {int(examples.ids[position])}, but the model's vocabulary has {rows:,} rows. Data and"
            " model do not belong together: were these rows tokenised with another tokenizer?"
        )
