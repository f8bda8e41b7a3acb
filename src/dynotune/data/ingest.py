"""Rows to examples, with every row accounted for: chunk by chunk, here or in other processes, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dynotune.config.keys.data import DataConfig
from dynotune.data.account.ledger import PLACES_KEPT, Ledger
from dynotune.data.account.quarantine import Quarantine
from dynotune.data.checks.duplicates import Duplicates
from dynotune.data.chunk import Chunk, ChunkEncoder, RowEncoder, Tokens
from dynotune.data.examples import Examples
from dynotune.data.formats.preference import PREFERENCE_NAMES
from dynotune.data.formats.recognise import Setting
from dynotune.data.places import Places
from dynotune.data.progress import loading_progress
from dynotune.data.rows import BadRow, Found, Line, Record
from dynotune.data.sources.columns import with_columns
from dynotune.errors import DataError

CHUNK_ROWS = 128
CHUNK_CHARACTERS = 2_000_000
"""Rows that are encoded together: few, since at the end of the data most cores wait for the last chunks. The second limit
bounds memory, and the time of one chunk, where rows are huge."""

Rows = list[Found]


class Sink(Protocol):
    """Where tokens go as they are made."""

    def add(self, tokens: Tokens) -> None: ...

    def refuse(self, bad: BadRow, values: Mapping[str, Any] | None) -> None: ...


@dataclass
class Account:
    """What became of a data set's rows, besides its tokens."""

    ledger: Ledger

    format: str
    """One sentence stating what was recognised: `messages (19,971 rows)`."""

    encoder_notices: Counter[str] = field(default_factory=Counter)
    """What the encoder noticed, by name; it is in the ledger's notices too."""

    probed: bool = False
    """Whether the chat template was examined, since some row is a conversation."""


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

    store: str = ""
    """One sentence: whether the tokens came from the token store, or why they were made."""

    about: dict[str, Any] = field(default_factory=dict)
    """What the token store's manifest says of the data (`data/store/describe.py`)."""

    def lines(self) -> list[str]:
        """What to say about where the data came from."""
        return [*self.sources, self.format, *([f"token store: {self.store}"] if self.store else [])]


class Memory:
    """A sink that keeps all tokens."""

    def __init__(self, quarantine: Quarantine | None, per_example: int = 1) -> None:
        self.kept: list[Tokens] = []
        self.quarantine, self.per_example = quarantine, per_example

    def add(self, tokens: Tokens) -> None:
        self.kept.append(tokens)

    def refuse(self, bad: BadRow, values: Mapping[str, Any] | None) -> None:
        if self.quarantine is not None:
            self.quarantine.write(bad, values)

    def examples(self) -> Examples:
        """All of them. Empties the sink."""
        kept, self.kept = self.kept, []
        lengths = np.concatenate([np.zeros(1, np.int64), *(tokens.lengths for tokens in kept)])
        ids = _joined([tokens.ids for tokens in kept])
        same = all(tokens.labels is None for tokens in kept)
        labels = ids if same else _joined([t.ids if t.labels is None else t.labels for t in kept])
        places = _joined_places([tokens.places for tokens in kept])
        return Examples(ids, labels, np.cumsum(lengths), places, per_example=self.per_example)


def _joined(arrays: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int32)


def _joined_places(all_places: list[Places]) -> Places:
    table: dict[str, int] = {}
    numbers, lines = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for places in all_places:
        numbers.append(places.renumbered(table))
        lines.append(places.lines)
    return Places(list(table), np.concatenate(numbers), np.concatenate(lines))


def load_examples(
    rows: Iterable[Found],
    config: DataConfig,
    encoder: RowEncoder,
    *,
    quarantine: Path | None,
    ledger: Ledger,
    show_progress: bool = False,
    name: str = "data",
) -> Loaded:
    """Recognise, check, tokenise and account for every row, in this process and in memory.

    `quarantine` is the file for bad rows under `on_bad_row: skip`; with None they are only counted. Raises `DataError`
    at the first bad row under `on_bad_row: error`, and where no row is left.
    """
    memory = Memory(Quarantine(quarantine) if quarantine else None, config.per_example)
    here = map(ChunkEncoder(config, encoder).encode, chunks(rows, config))
    account = take_chunks(here, memory, ledger, encoder, name, config, show_progress=show_progress)
    return Loaded(memory.examples(), account.ledger, account.format)


def chunks(rows: Iterable[Found], config: DataConfig) -> Iterator[Rows]:
    """Rows under their new column names, as many at a time as are encoded together."""
    chunk: Rows = []
    characters = 0
    for row in rows:
        renamed = with_columns(row, config.columns)
        chunk.append(renamed)
        if isinstance(renamed, Line):
            characters += len(renamed.raw)
        elif isinstance(renamed, Record):
            characters += _characters(renamed.values)
        if len(chunk) >= CHUNK_ROWS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def take_chunks(
    encoded: Iterable[Chunk],
    sink: Sink,
    ledger: Ledger,
    encoder: RowEncoder,
    name: str,
    config: DataConfig,
    *,
    show_progress: bool = False,
) -> Account:
    """Hand the tokens of all chunks to the sink, in order, and account for their rows in `ledger`.

    Raises `DataError` where no row is left.
    """
    duplicates = Duplicates(pairs=config.per_example > 1)
    formats: Counter[str] = Counter()
    first_format: dict[str, str] = {}
    noticed: Counter[str] = Counter()
    used, probed = 0, False
    with loading_progress(f"Reading {name}", show_progress) as advance:
        for chunk in encoded:
            ledger.merge(chunk.ledger)
            for (file, form), found in chunk.formats.items():
                formats[form] += found.recognised
                if first_format.setdefault(file, form) != form and found.used:
                    ledger.notices[f"{form}-row"] += found.used
                    kept = ledger.places.setdefault(f"{form}-row", [])
                    kept += [str(place) for place in found.first_used][: PLACES_KEPT - len(kept)]
            noticed.update(chunk.encoder_notices)
            duplicates.add(chunk.hashes)
            for bad, values in chunk.refused:
                sink.refuse(bad, values)
            sink.add(chunk.tokens)
            used += len(chunk.tokens.lengths)
            probed |= chunk.probed
            advance(chunk.rows)
    for notice, place in duplicates.found():
        ledger.notice([notice], place)
    ledger.notices.update(noticed)
    ledger.check()
    if not used:
        raise DataError(f"{name}: no row is left.\n{_as_text(ledger, name)}")
    return Account(ledger, _format(formats, Setting.of(config, encoder.tokenizer)), noticed, probed)


def _format(formats: Counter[str], setting: Setting) -> str:
    names = {
        "sharegpt": "ShareGPT conversations",
        "alpaca": "Alpaca, as messages for the chat template"
        if setting.has_chat_template
        else "Alpaca, with Alpaca's own prompt text (the tokenizer has no chat template)",
        "text": f"text in the column `{setting.text_field}`",
        **PREFERENCE_NAMES,
    }
    kind = "pair" if setting.pairs else "row"
    counted = [f"{names.get(form, form)} ({count:,} {kind}{'s' * (count != 1)})" for form, count in formats.items()]
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


def _as_text(ledger: Ledger, title: str) -> str:
    from io import StringIO

    from rich.console import Console

    text = StringIO()
    Console(file=text, width=110).print(ledger.summary(title))
    return text.getvalue().rstrip()
