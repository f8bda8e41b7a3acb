"""A chunk of rows to examples, with its own account: what one process does while others do the same with other chunks.

A chunk depends on its rows and the configuration alone, never on other chunks, so any number of processes gives the same
data set. What needs the rows before it (duplicates, a file's first format) is left to `ingest`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dynotune.config.keys.data import DataConfig
from dynotune.data.account.ledger import PLACES_KEPT, Ledger, count_labels
from dynotune.data.checks.duplicates import RowHashes, pair_hashes, row_hashes
from dynotune.data.checks.pairs import pair_notices
from dynotune.data.checks.rows import row_notices
from dynotune.data.checks.text_checks import ControlTokens
from dynotune.data.checks.view import View
from dynotune.data.examples import Example
from dynotune.data.formats.messages import fill_null_content
from dynotune.data.formats.recognise import Setting, normalise
from dynotune.data.places import Places
from dynotune.data.rows import BadRow, Found, Place, Row
from dynotune.data.sources.columns import parsed
from dynotune.data.tokens.pairs import sides_of
from dynotune.errors import DataError
from dynotune.printable import printable, row_beginning

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class RowEncoder(Protocol):
    """What loading needs of `dynotune.data.tokens.encode.Encoder`."""

    tokenizer: PreTrainedTokenizerBase
    notices: Counter[str]

    def encode(self, rows: Sequence[Row]) -> Sequence[Example | list[Example] | BadRow]: ...


@dataclass
class Tokens:
    """Examples side by side. `labels` is None where every label is its token's id. `lengths` and `places` [rows]."""

    ids: NDArray[np.int32]
    labels: NDArray[np.int32] | None
    lengths: NDArray[np.int64]
    places: Places

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Tokens:
        empty = [np.zeros(0, np.int32)]
        ids = np.concatenate([e.ids_T for e in examples] or empty)
        same = all(e.labels_T is e.ids_T for e in examples)
        labels = ids if same else np.concatenate([e.labels_T for e in examples] or empty)
        lengths = np.array([len(e.ids_T) for e in examples], np.int64)
        places = Places.of(e.place for e in examples)
        return cls(ids, None if same or np.array_equal(ids, labels) else labels, lengths, places)


@dataclass
class FormatFound:
    """Rows of one format in one file."""

    recognised: int = 0
    used: int = 0
    first_used: list[Place] = field(default_factory=list)


@dataclass
class Chunk:
    """What a chunk of rows became."""

    rows: int
    tokens: Tokens
    ledger: Ledger
    formats: dict[tuple[str, str], FormatFound]
    """By file and format, in the order in which they first appear."""
    encoder_notices: Counter[str]
    probed: bool
    """Whether the encoder has examined the chat template."""
    hashes: RowHashes
    refused: list[tuple[BadRow, Mapping[str, Any] | None]]
    """Bad rows with what they held, in order."""


class ChunkEncoder:
    """Recognises, checks, tokenises and accounts for rows, a chunk at a time."""

    def __init__(self, config: DataConfig, encoder: RowEncoder) -> None:
        self.config, self.encoder = config, encoder
        self.setting = Setting.of(config, encoder.tokenizer)
        self.control = ControlTokens.of(encoder.tokenizer)

    def encode(self, found_rows: Sequence[Found]) -> Chunk:
        """Raises `DataError` at the first bad row under `on_bad_row: error`."""
        rows = [parsed(row) for row in found_rows]
        account = _Account(self.config.on_bad_row == "error", self.config.per_example)
        before = self.encoder.notices.copy()
        recognised = [row if isinstance(row, BadRow) else normalise(row, self.setting) for row in rows]
        results = self._encode([found[1] for found in recognised if not isinstance(found, BadRow)])
        hashes = RowHashes()
        for row, found in zip(rows, recognised, strict=True):
            account.read(row.place)
            values = None if isinstance(row, BadRow) else row.values
            if isinstance(found, BadRow):
                account.refuse(found, values)
                continue
            assert values is not None
            (name, normal), result = found, next(results)
            of_format = account.format(row.place.file, name)
            if isinstance(result, BadRow):
                result.beginning = result.beginning or row_beginning(values)
                account.refuse(result, values)
                continue
            examples = [result] if isinstance(result, Example) else result
            if not examples or not all(count_labels(example) for example in examples):
                detail = "no token of the row carries loss"
                account.refuse(BadRow(row.place, "no-labels", detail, row_beginning(values)), values)
                continue
            views = [View(side) for side in sides_of(normal)]
            notices = [name for view in views for name in row_notices(view, self.control)]
            if self.config.per_example == 1:
                hashes.add(row.place, row_hashes(views[0], values))
            else:
                notices += pair_notices(views[0], views[1])
                hashes.add(row.place, pair_hashes(views[0], views[1], values))
            account.use(row.place, examples, list(dict.fromkeys(notices)), of_format)
        return Chunk(
            rows=len(rows),
            tokens=Tokens.of(account.examples),
            ledger=account.ledger,
            formats=account.formats,
            encoder_notices=self.encoder.notices - before,
            probed=getattr(self.encoder, "probed", False),
            hashes=hashes,
            refused=account.refused,
        )

    def _encode(self, rows: list[Row]) -> Any:
        results = list(self.encoder.encode(rows)) if rows else []
        # `content: null` beside tool calls is the usual form, and some templates fail on it. Those that do not are
        # given it as it is, because some tell null from the empty text.
        failed = [
            index
            for index, result in enumerate(results)
            if isinstance(result, BadRow) and result.reason == "template-refused" and fill_null_content(rows[index])
        ]
        if failed:
            for index, result in zip(failed, self.encoder.encode([rows[index] for index in failed]), strict=True):
                results[index] = result
        return iter(results)


class _Account:
    def __init__(self, bad_rows_stop: bool, per_example: int) -> None:
        self.bad_rows_stop, self.per_example = bad_rows_stop, per_example
        self.ledger = Ledger()
        self.examples: list[Example] = []
        self.formats: dict[tuple[str, str], FormatFound] = {}
        self.refused: list[tuple[BadRow, Mapping[str, Any] | None]] = []

    def read(self, place: Place) -> None:
        if place.line is not None:
            self.ledger.read(place)

    def format(self, file: str, name: str) -> FormatFound:
        found = self.formats.setdefault((file, name), FormatFound())
        found.recognised += 1
        return found

    def use(self, place: Place, examples: list[Example], notices: list[str], of_format: FormatFound) -> None:
        self.ledger.use(place, examples, self.per_example)
        self.ledger.notice(notices, place)
        self.examples += examples
        of_format.used += 1
        if len(of_format.first_used) < PLACES_KEPT:
            of_format.first_used.append(place)

    def refuse(self, bad: BadRow, values: Mapping[str, Any] | None) -> None:
        if self.bad_rows_stop:
            raise DataError(_refusal(bad))
        self.ledger.refuse(bad)
        self.refused.append((bad, values))


def _refusal(bad: BadRow) -> str:
    begins = f"\n  it begins: {bad.beginning}" if bad.beginning else ""
    stop = "" if bad.detail.endswith((".", "?")) else "."
    what = "the file is left out" if bad.place.line is None else "such rows are left out"
    return (
        f"{printable(str(bad.place))}: {bad.reason}: {printable(bad.detail)}{stop}{begins}\n"
        f"  Mend it, or set `on_bad_row: skip`: {what}, written to quarantine.jsonl and counted in the ledger."
    )
