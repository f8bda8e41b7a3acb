"""From tokenised data to a plan: truncate, leave out what has no label left, and account for it in the ledger."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dynotune.config.keys.data import DataConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.examples import Examples
from dynotune.data.rows import BadRow
from dynotune.errors import DataError
from dynotune.plan.truncation import Spans, truncate

NO_LABELS_LEFT = "no-labels-after-truncation"


def trainable_spans(
    examples: Examples, config: DataConfig, ledger: Ledger, quarantine: Callable[[BadRow], None] | None
) -> tuple[Spans, NDArray[np.int64]]:
    """The used part of every example, and the indices [rows] of those that still have a label token.

    A row that loses its last label to `max_length` is bad (`on_bad_row`): TRL drops such rows without a word.
    """
    spans = truncate(examples, config.max_length, config.truncation_mode)
    full = truncate(examples, None, config.truncation_mode)
    for row in np.flatnonzero(spans.cut_tokens).tolist():
        if spans.label_tokens[row]:
            lost = int(full.label_tokens[row] - spans.label_tokens[row])
            ledger.truncate(examples.places[row], int(spans.cut_tokens[row]), lost)
    empty = np.flatnonzero(spans.label_tokens == 0).tolist()
    if empty and config.on_bad_row == "error":
        places = ", ".join(str(examples.places[row]) for row in empty[:5])
        have = "row has" if len(empty) == 1 else "rows have"
        raise DataError(
            f"{len(empty)} {have} no label token left under `max_length: {config.max_length}` with `truncation_mode:"
            f" {config.truncation_mode}` ({places}{', ...' if len(empty) > 5 else ''}): nothing of it would train. Raise"
            " `max_length`, or set `on_bad_row: skip` to leave them out and count them (TRL drops them and says nothing)."
        )
    for row in empty:
        place, tokens = examples.places[row], int(full.lengths[row])
        ledger.skip(NO_LABELS_LEFT, place, tokens, int(full.label_tokens[row]))
        if quarantine:
            detail = f"no label token is left in the {int(spans.lengths[row])} of {tokens} tokens that max_length keeps"
            quarantine(BadRow(place, NO_LABELS_LEFT, detail))
    ledger.check()
    return spans, np.flatnonzero(spans.label_tokens)


def check_vocabulary(examples: Examples, rows: int) -> None:
    """Every token id must have a row in the embedding: an id beyond it is a device-side fault hours into a run."""
    if len(examples.ids) and (int(examples.ids.max()) >= rows or int(examples.ids.min()) < 0):
        position = int(np.flatnonzero((examples.ids >= rows) | (examples.ids < 0))[0])
        place = examples.places[int(np.searchsorted(examples.offsets, position, side="right")) - 1]
        raise DataError(
            f"{place} holds token id {int(examples.ids[position])}, but the model's vocabulary has {rows:,} rows. Data and"
            " model do not belong together: were these rows tokenised with another tokenizer?"
        )
