"""Rows to examples, with every row accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dynotune.config.keys.data import DataConfig
from dynotune.data.account.ledger import Ledger, count_labels
from dynotune.data.account.quarantine import Quarantine
from dynotune.data.checks.duplicates import Duplicates
from dynotune.data.checks.rows import row_notices
from dynotune.data.checks.text_checks import ControlTokens
from dynotune.data.examples import Example, Examples
from dynotune.data.formats.messages import fill_null_content
from dynotune.data.formats.recognise import Setting, normalise
from dynotune.data.printable import printable, row_beginning
from dynotune.data.progress import loading_progress
from dynotune.data.rows import BadRow, Record, Row
from dynotune.data.sources.columns import with_columns
from dynotune.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCH_ROWS = 1024
BATCH_CHARACTERS = 8_000_000
"""Rows handed to the encoder at a time. The second limit bounds memory where rows are huge."""


class RowEncoder(Protocol):
    """What loading needs of `dynotune.data.tokens.encode.Encoder`."""

    tokenizer: PreTrainedTokenizerBase
    notices: Counter[str]

    def encode(self, rows: Sequence[Row]) -> Sequence[Example | list[Example] | BadRow]: ...


@dataclass
class Loaded:
    """What a data set became."""

    examples: Examples
    """Untruncated."""

    ledger: Ledger

    format: str
    """One sentence stating what was recognised: `messages (19,971 rows)`."""

    sources: list[str] = field(default_factory=list)
    """One sentence for each source: which files in which order, which split."""


def load_examples(
    rows: Iterable[Record | BadRow],
    config: DataConfig,
    encoder: RowEncoder,
    *,
    quarantine: Path | None,
    ledger: Ledger,
    show_progress: bool = False,
    name: str = "data",
) -> Loaded:
    """Recognise, check, tokenise and account for every row.

    `quarantine` is the file for bad rows under `on_bad_row: skip`; with None they are only counted. Raises `DataError`
    at the first bad row under `on_bad_row: error`, and where no row is left.
    """
    loading = _Loading(config, encoder, ledger, Quarantine(quarantine) if quarantine else None)
    with loading_progress(f"Reading {name}", show_progress) as advance:
        for row in rows:
            loading.take(with_columns(row, config.columns))
            if loading.batch_is_full:
                advance(loading.flush())
        advance(loading.flush())
    return loading.finish(name)


@dataclass
class _Loading:
    config: DataConfig
    encoder: RowEncoder
    ledger: Ledger
    quarantine: Quarantine | None

    def __post_init__(self) -> None:
        tokenizer = self.encoder.tokenizer
        self.setting = Setting(self.config.dataset_text_field, tokenizer.chat_template is not None)
        self.control = ControlTokens.of(tokenizer)
        self.duplicates = Duplicates()
        self.examples: list[Example] = []
        self.formats: Counter[str] = Counter()
        self.first_format: dict[str, str] = {}
        self.waiting: list[tuple[Row, Mapping[str, Any]]] = []
        self.characters = 0
        self.encoder_notices_before = self.encoder.notices.copy()

    @property
    def batch_is_full(self) -> bool:
        return len(self.waiting) >= BATCH_ROWS or self.characters >= BATCH_CHARACTERS

    def take(self, row: Record | BadRow) -> None:
        """A row from its source."""
        if row.place.line is not None:
            self.ledger.read(row.place)
        if isinstance(row, BadRow):
            self.refuse(row)
            return
        recognised = normalise(row, self.setting)
        if isinstance(recognised, BadRow):
            self.refuse(recognised, row.values)
            return
        name, normal = recognised
        self.formats[name] += 1
        if self.first_format.setdefault(row.place.file, name) != name:
            normal.notices.append(f"{name}-row")
        self.waiting.append((normal, row.values))
        self.characters += _characters(row.values)

    def flush(self) -> int:
        """Encode the rows that wait. Returns their number."""
        waiting, self.waiting, self.characters = self.waiting, [], 0
        if not waiting:
            return 0
        results = self._encode([row for row, _ in waiting])
        for (row, values), result in zip(waiting, results, strict=True):
            if isinstance(result, BadRow):
                result.beginning = result.beginning or row_beginning(values)
                self.refuse(result, values)
                continue
            examples = [result] if isinstance(result, Example) else result
            unlabelled = next((example for example in examples if not count_labels(example)), None)
            if unlabelled is not None or not examples:
                detail = "no token of the row carries loss"
                self.refuse(BadRow(row.place, "no-labels", detail, row_beginning(values)), values)
                continue
            self.ledger.use(row.place, examples)
            self.ledger.notice(row_notices(row, self.control), row.place)
            self.duplicates.add(row, values)
            self.examples += examples
        return len(waiting)

    def _encode(self, rows: list[Row]) -> list[Example | list[Example] | BadRow]:
        results = list(self.encoder.encode(rows))
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
        return results

    def refuse(self, bad: BadRow, values: Mapping[str, Any] | None = None) -> None:
        if self.config.on_bad_row == "error":
            # The rows before it may hold an earlier fault, and the first one is what the user should see.
            self.flush()
            raise DataError(_refusal(bad))
        self.ledger.refuse(bad)
        if self.quarantine is not None:
            self.quarantine.write(bad, values)

    def finish(self, name: str) -> Loaded:
        for notice, place in self.duplicates.found():
            self.ledger.notice([notice], place)
        self.ledger.notices.update(self.encoder.notices - self.encoder_notices_before)
        self.ledger.check()
        if not self.examples:
            raise DataError(f"{name}: no row is left to train on.\n{_as_text(self.ledger, name)}")
        return Loaded(Examples.from_list(self.examples), self.ledger, self._format())

    def _format(self) -> str:
        names = {
            "sharegpt": "ShareGPT conversations",
            "alpaca": "Alpaca, as messages for the chat template"
            if self.setting.has_chat_template
            else "Alpaca, with Alpaca's own prompt text (the tokenizer has no chat template)",
            "text": f"text in the column `{self.setting.text_field}`",
        }
        counted = [
            f"{names.get(form, form)} ({count:,} row{'s' * (count != 1)})" for form, count in self.formats.items()
        ]
        return counted[0] if len(counted) == 1 else f"mixed formats: {'; '.join(counted)}"


def _characters(values: Mapping[str, Any]) -> int:
    """Roughly how much text a row holds."""
    total = 0
    for value in values.values():
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, list):
            total += sum(len(str(item.get("content") or "")) if isinstance(item, Mapping) else 1 for item in value)
    return total


def _refusal(bad: BadRow) -> str:
    begins = f"\n  it begins: {bad.beginning}" if bad.beginning else ""
    stop = "" if bad.detail.endswith((".", "?")) else "."
    what = "the file is left out" if bad.place.line is None else "such rows are left out"
    return (
        f"{printable(str(bad.place))}: {bad.reason}: {printable(bad.detail)}{stop}{begins}\n"
        f"  Mend it, or set `on_bad_row: skip`: {what}, written to quarantine.jsonl and counted in the ledger."
    )


def _as_text(ledger: Ledger, title: str) -> str:
    from io import StringIO

    from rich.console import Console

    text = StringIO()
    Console(file=text, width=110).print(ledger.summary(title))
    return text.getvalue().rstrip()
