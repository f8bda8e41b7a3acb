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
from dynotune.plan.truncation import Spans, equal_sides, truncate

NO_LABELS_LEFT = "no-labels-after-truncation"

SIDES_EQUAL = "sides-equal-after-truncation"
"""Notice of a pair that trains, as in TRL, though `max_length` cut away what tells its answers apart."""


def trainable_spans(
    examples: Examples,
    config: DataConfig,
    ledger: Ledger,
    quarantine: Callable[[BadRow], None] | None,
    text_of: Callable[[NDArray[np.int32]], str] | None = None,
    shuffle_seed: int | None = None,
) -> tuple[Spans, NDArray[np.int64]]:
    """The used part of every document, and the indices of the documents of all rows that still train, in order or
    (`shuffle_dataset`) in the order that `shuffle_seed` gives. Sides of pairs follow each other, chosen first.

    A row that loses its last label to `max_length` is left out, as in TRL; here it is counted, listed in the quarantine and
    said. It is not a bad row: the setting makes it unusable, and another setting would not. A pair is left out whole, where
    one side has no label left. Raises `DataError` where that leaves nothing.
    """
    spans = truncate(examples, config.max_length, config.truncation_mode)
    per_row = examples.by_row
    labelled = np.all(spans.label_tokens.reshape(-1, examples.per_example) > 0, axis=1)
    cut_tokens, full, places = per_row(spans.cut_tokens), per_row(examples.lengths), examples.places_of_rows
    cut = np.flatnonzero(cut_tokens)
    full_labels = per_row(
        truncate(examples, None, config.truncation_mode).label_tokens if len(cut) else spans.label_tokens
    )
    cut = cut[labelled[cut]]
    ledger.truncate(places.take(cut), cut_tokens[cut], (full_labels - per_row(spans.label_tokens))[cut])
    empty = np.flatnonzero(~labelled)
    if len(empty) and len(empty) == examples.rows:
        what = "row" if examples.per_example == 1 else "pair"
        raise DataError(
            f"No {what} of {examples.places[0].file} has a label token left under `max_length: {config.max_length}` with"
            f" `truncation_mode: {config.truncation_mode}`. Raise `max_length`."
        )
    ledger.skip(NO_LABELS_LEFT, places.take(empty), full[empty], full_labels[empty])
    kept = per_row(spans.lengths)[empty].tolist() if len(empty) and quarantine is not None else []
    for row, length in zip(empty.tolist(), kept, strict=False):
        assert quarantine is not None
        of = "" if examples.per_example == 1 else " of at least one side"
        detail = f"no label token{of} is left in the {length} of {full[row]} tokens that max_length keeps"
        start = text_of(examples[row * examples.per_example].ids_T[:64]) if text_of else ""
        quarantine(BadRow(places[row], NO_LABELS_LEFT, detail, beginning(start)))
    rows = np.flatnonzero(labelled)
    if examples.per_example > 1:
        equal = equal_sides(examples, spans, rows[cut_tokens[rows] > 0])
        for row in equal.tolist():
            ledger.notice([SIDES_EQUAL], places[row])
        if shuffle_seed is not None:
            rows = rows[np.random.default_rng(shuffle_seed).permutation(len(rows))]
    elif shuffle_seed is not None:
        rows = shuffled(examples, spans, rows, shuffle_seed)
    ledger.check()
    return spans, examples.documents_of(rows)


def rows_without_labels(ledger: Ledger, config: DataConfig) -> str | None:
    """A sentence about the rows that `max_length` left without a label, where there are some."""
    lost = ledger.skipped[NO_LABELS_LEFT]
    if not lost:
        return None
    what = "row" if config.per_example == 1 else "pair"
    have, first = (f"{what} has" if lost == 1 else f"{what}s have"), ", ".join(ledger.places[NO_LABELS_LEFT][:3])
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
