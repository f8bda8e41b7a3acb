"""What a data set brings to a run once `max_length` and packing have been applied: its documents, and how they make rows."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dynotune.config.keys.data import DataConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.examples import IGNORE, Examples
from dynotune.data.rows import BadRow
from dynotune.errors import DataError
from dynotune.plan.make import trainable_spans
from dynotune.plan.trl_packing import Bins, pack_rows
from dynotune.plan.truncation import Spans, truncate


@dataclass(frozen=True, slots=True)
class Packing:
    """TRL's packing, as it was carried out."""

    strategy: str
    max_length: int
    rows_unpacked: int
    """Rows that would train without packing."""

    offsets: NDArray[np.int64]
    """[bins + 1]: bin b holds the documents `rows[offsets[b]:offsets[b + 1]]` of the content."""

    @property
    def isolated(self) -> bool:
        """Whether the documents of different rows do not see each other."""
        return self.strategy != "wrapped"


@dataclass(frozen=True, slots=True)
class Content:
    """The documents of a data set."""

    examples: Examples
    """Those that were tokenised, or what packing has made of them: one for each document, over the same token arrays."""

    spans: Spans
    """[documents]: the part of each that is used."""

    rows: NDArray[np.int64]
    """The documents in the order of the data set, or bin by bin: indices into `spans`."""

    packing: Packing | None = None
    """None where each document is a row of its own."""


def make_content(
    examples: Examples,
    config: DataConfig,
    ledger: Ledger,
    quarantine: Callable[[BadRow], None] | None = None,
    text_of: Callable[[NDArray[np.int32]], str] | None = None,
    *,
    shuffle_seed: int | None = None,
    packing: str | None = None,
) -> Content:
    """Apply `max_length`, `shuffle_dataset` (with `shuffle_seed`) and TRL's packing by the strategy `packing`.

    What is cut is accounted for in the ledger. Without packing, rows that lose every label are left out; with it they stay,
    both as in TRL. Raises `DataError` where no label is left at all.
    """
    if packing is None:
        spans, rows = trainable_spans(examples, config, ledger, quarantine, text_of, shuffle_seed)
        return Content(examples, spans, rows)
    assert config.max_length is not None  # the configuration refuses packing without it
    order = np.arange(len(examples))
    if shuffle_seed is not None:
        order = np.random.default_rng(shuffle_seed).permutation(len(examples))
    bins = pack_rows(examples, order, packing, config.max_length)
    spans = truncate(bins.examples, config.max_length, "keep_start")
    if not spans.label_tokens[bins.documents].sum():
        raise DataError(
            f"No row of {examples.places[0].file} has a label token left under `packing: true` with"
            f" `max_length: {config.max_length}`. Raise `max_length`."
        )
    _account(ledger, examples, order, bins, spans, packing, config.max_length)
    if shuffle_seed is not None:
        bins = bins.shuffled(shuffle_seed)
    unpacked = int(np.count_nonzero(truncate(examples, config.max_length, "keep_start").label_tokens))
    return Content(bins.examples, spans, bins.documents, Packing(packing, config.max_length, unpacked, bins.offsets))


def _account(
    ledger: Ledger,
    examples: Examples,
    order: NDArray[np.int64],
    bins: Bins,
    spans: Spans,
    strategy: str,
    max_length: int,
) -> None:
    """Tokens that are cut off, and labels that lose their predecessor where a row is cut in two.

    `wrapped` gives a predecessor to the first token of most rows, so there the count of lost labels may be negative.
    """
    cut = np.zeros(len(order), np.int64)
    if strategy == "wrapped":
        starts = bins.examples.starts[0] + np.cumsum(examples.lengths[order]) - examples.lengths[order]
        labels, cuts = bins.examples.labels, bins.examples.starts
        lost = np.zeros(len(order), np.int64)
        inside = np.setdiff1d(cuts, starts)
        np.add.at(lost, np.searchsorted(starts, inside, side="right") - 1, labels[inside] != IGNORE)
        joined = np.flatnonzero(~np.isin(starts, cuts) & (examples.lengths[order] > 0))
        lost[joined] -= labels[starts[joined]] != IGNORE
    else:
        full = truncate(examples, None, "keep_start").label_tokens[order]
        if strategy == "bfd":
            kept, cut = spans.label_tokens[order], spans.cut_tokens[order]
        else:
            documents = -(-examples.lengths[order] // max_length)
            row = np.repeat(np.arange(len(order)), documents)
            kept = np.bincount(row, spans.label_tokens, len(order)).astype(np.int64)
        lost = full - kept
    touched = np.flatnonzero((cut > 0) | (lost != 0))
    ledger.truncate(examples.places.take(order[touched]), cut[touched], lost[touched])
    ledger.check()
