"""From tokenised data to a plan: truncate, leave out what has no label left, and account for it in the ledger."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dynotune.config.keys.data import DataConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.examples import IGNORE, Examples
from dynotune.data.rows import BadRow
from dynotune.errors import DataError
from dynotune.plan.shuffle import shuffled
from dynotune.plan.truncation import Spans, equal_sides, truncate
from dynotune.printable import beginning

NO_LABELS_LEFT = "no-labels-after-truncation"

FIRST_LABEL_LEFT = "only-first-label-after-truncation"
"""The one label left stands on the first token, which nothing predicts. TRL keeps such a row as an example without loss."""

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
    first = np.zeros(len(empty), bool)
    if examples.per_example == 1:
        first = (spans.lengths[empty] > 0) & (examples.labels[spans.start[empty]] != IGNORE)
    for reason, some in ((NO_LABELS_LEFT, empty[~first]), (FIRST_LABEL_LEFT, empty[first])):
        if len(some):
            ledger.skip(reason, places.take(some), full[some], full_labels[some])
    kept = per_row(spans.lengths)[empty].tolist() if len(empty) and quarantine is not None else []
    for row, length, has_first in zip(empty.tolist(), kept, first.tolist(), strict=False):
        assert quarantine is not None
        of = "" if examples.per_example == 1 else " of at least one side"
        detail = f"no label token{of} is left in the {length} of {full[row]} tokens that max_length keeps"
        start = text_of(examples[row * examples.per_example].ids_T[:64]) if text_of else ""
        reason = FIRST_LABEL_LEFT if has_first else NO_LABELS_LEFT
        quarantine(BadRow(places[row], reason, detail, beginning(start)))
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


KEPT_IN_TRL = "TRL keeps them as examples without loss, so that its steps hold other rows from there on"


def rows_without_labels(ledger: Ledger, config: DataConfig) -> str | None:
    """A sentence about the rows that `max_length` left without a label, where there are some."""
    what = "row" if config.per_example == 1 else "pair"
    said = []
    for reason, left, in_trl in (
        (NO_LABELS_LEFT, "no label token left", "TRL leaves them out too"),
        (FIRST_LABEL_LEFT, "a label on the first token alone left, which nothing predicts,", KEPT_IN_TRL),
    ):
        if lost := ledger.skipped[reason]:
            have, places = (f"{what} has" if lost == 1 else f"{what}s have"), ", ".join(ledger.places[reason][:3])
            said.append(
                f"{lost:,} {have} {left} under `max_length: {config.max_length}` and will not train ({places}"
                f"{', ...' if lost > 3 else ''}); {in_trl}. Raise `max_length` to train them"
            )
    return ". ".join(said) or None


def check_vocabulary(examples: Examples, rows: int) -> None:
    """Every token id must have a row in the embedding: an id beyond it is a device-side fault hours into a run."""
    if len(examples.ids) and (int(examples.ids.max()) >= rows or int(examples.ids.min()) < 0):
        position = int(np.flatnonzero((examples.ids >= rows) | (examples.ids < 0))[0])
        place = examples.places[examples.row_of(position)]
        raise DataError(
            f"{place} holds token id {int(examples.ids[position])}, but the model's vocabulary has {rows:,} rows. Data and"
            " model do not belong together: were these rows tokenised with another tokenizer?"
        )
