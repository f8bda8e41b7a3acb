"""What a data set holds: its rows through Dynotune's own recogniser, checks and ledger, and their lengths.

With a tokenizer's folder, lengths, labels and template are real, and follow TRL as training does; without, lengths are
estimated from words. Only local files are read: an audit waits for no network.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from glob import has_magic
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dynotune.audit.facts.data import ESTIMATED, DataFacts
from dynotune.audit.facts.job import Job, Method
from dynotune.audit.place import Place
from dynotune.audit.read.estimated import tokens_of
from dynotune.config.keys.data import DataConfig, PreferenceDataConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.checks.duplicates import RowHashes
from dynotune.data.chunk import Chunk, ChunkEncoder
from dynotune.data.examples import IGNORE, Example
from dynotune.data.formats.preference import shape_of
from dynotune.data.ingest import Memory, chunks, take_chunks
from dynotune.data.read.byte_streams import NOT_READ_ON, at_most
from dynotune.data.rows import BadRow, Found, Record, Row
from dynotune.data.sources.columns import parsed
from dynotune.data.sources.locate import Location, open_splits
from dynotune.data.tokens.pairs import sides_of
from dynotune.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROWS, SECONDS = 20_000, 30.0
"""How much is read: whichever comes first."""

TURN = 4
"""Tokens that a template puts around a turn, where none is given."""


def read_data(
    path: str | Path,
    tokenizer: str | None,
    job: Job | None,
    *,
    rows: int = ROWS,
    seconds: float = SECONDS,
    size: int | None = None,
) -> DataFacts:
    """The facts of the training split of a local file, folder or glob.

    tokenizer: a folder with one; None estimates. job: what it is read for: whether rows are pairs, and which
    tokens carry loss. rows, seconds, size: reading stops at the first of these; what is left unread is said in `said`. The
    time is looked at after each row, the size (bytes of a text file, decompressed) while one is read.

    Raises what opening data and loading a tokenizer raise (`DataError`, `ModelError`, `TemplateError`), and `DataError`
    where no row can be used.
    """
    with at_most(size):
        return _read(path, tokenizer, job, rows, seconds)


def _read(path: str | Path, tokenizer: str | None, job: Job | None, rows: int, seconds: float) -> DataFacts:
    location = Location(str(path))
    if not has_magic(str(path)) and not Path(path).expanduser().exists():
        raise DataError(f"{path}: no such file or folder. An audit reads local data only; give the file.")
    splits = open_splits(location)
    source = splits.get("train") or next(iter(splits.values()))
    pairs = _are_pairs(source, job)
    config = _config(job, pairs=pairs)
    encoder = _encoder(tokenizer, config)
    reading = _Reading(rows, time.monotonic() + seconds)
    memory = Memory(None, config.per_example)
    here = map(ChunkEncoder(config, encoder).encode, chunks(reading.some(source), config))
    account = take_chunks(reading.seen(here), memory, Ledger(), encoder, str(path), config)
    examples = memory.examples()
    said = [] if not reading.stopped else [f"only the first {reading.rows:,} rows were read ({reading.stopped})"]
    if tokenizer is None:
        said.append(f"lengths are estimated from words, with {TURN} tokens for every turn")
    return DataFacts(
        place=Place(Path(path).as_posix()),
        format=account.format,
        rows=reading.rows,
        ledger=account.ledger.to_json(),
        lengths=examples.lengths.tolist(),
        label_tokens=examples.label_counts(np.minimum(examples.starts + 1, examples.ends), examples.ends).tolist(),
        first_labels=[_first(examples.labels[a:b]) for a, b in zip(examples.starts, examples.ends, strict=True)],
        per_example=config.per_example,
        contents=reading.hashes.hashes[1::4].tolist(),
        tokenizer=tokenizer or ESTIMATED,
        sampled=bool(reading.stopped),
        template=_template(encoder),
        said=said,
    )


class _Reading:
    """Counts and ends the reading, and keeps the hashes of what was read."""

    def __init__(self, limit: int, end: float) -> None:
        self.limit, self.end = limit, end
        self.rows, self.stopped = 0, ""
        self.hashes = RowHashes()

    def some(self, source: Any) -> Iterator[Found]:
        for row in source:
            if self.rows >= self.limit:
                self.stopped = f"at most {self.limit:,}"
                return
            if time.monotonic() > self.end:
                self.stopped = "the time for it was over"
                return
            if isinstance(row, BadRow) and row.reason == NOT_READ_ON:
                self.stopped = row.detail.partition(";")[0]
                return
            self.rows += not (isinstance(row, BadRow) and row.place.line is None)
            yield row

    def seen(self, encoded: Iterator[Chunk]) -> Iterator[Chunk]:
        for chunk in encoded:
            self.hashes.extend(chunk.hashes)
            yield chunk


def _are_pairs(source: Any, job: Job | None) -> bool:
    if job is not None and job.method is not None:
        return job.method is Method.DPO
    for row in islice(source, 20):
        record = parsed(row)
        if isinstance(record, Record):
            return shape_of({name: value for name, value in record.values.items() if value is not None}) is not None
    return False


def _config(job: Job | None, *, pairs: bool) -> DataConfig:
    keys: dict[str, Any] = {"on_bad_row": "skip", "max_length": None, "dataset_num_proc": 1}
    if job is not None:
        if isinstance(field := job.get("dataset_text_field"), str):
            keys["dataset_text_field"] = field
        keys["assistant_only_loss"] = job.get("assistant_only_loss") is True
        if isinstance(only := job.get("completion_only_loss"), bool):
            keys["completion_only_loss"] = only
    return (PreferenceDataConfig if pairs else DataConfig)(**keys)


def _encoder(tokenizer: str | None, config: DataConfig) -> Any:
    if tokenizer is None:
        return Estimate(config)
    from dynotune.config.keys.model import ModelConfig
    from dynotune.data.tokens.encode import Encoder
    from dynotune.model.tokenizer import load_tokenizer

    if not Path(tokenizer).exists():
        raise DataError(f"{tokenizer}: no such folder. Name a folder that holds the tokenizer.")
    return Encoder(load_tokenizer(ModelConfig(tokenizer_name_or_path=tokenizer), config), config)


def _template(encoder: Any) -> dict[str, Any]:
    if not getattr(encoder, "probed", False):
        return {}
    report = encoder.template_report
    return {
        "findings": {finding.name: finding.sentence for finding in report.findings},
        "end_token": report.end_token,
        "prefix_preserving": report.prefix_preserving,
        "has_generation": encoder.template.has_generation,
    }


def _first(labels: Any) -> int:
    """The first position that carries loss, or the length where none does. A label at 0 has no predecessor."""
    found = np.flatnonzero(labels[1:] != IGNORE)
    return int(found[0]) + 1 if len(found) else len(labels)


class _NoTokenizer:
    """What the checks of rows ask of a tokenizer where there is none."""

    chat_template = ""
    added_tokens_decoder: dict[int, Any] = {}  # noqa: RUF012  (never changed)
    all_special_tokens: tuple[str, ...] = ()
    eos_token = pad_token = None


class Estimate:
    """Stands in for the encoder: as many tokens as words let expect, with labels where training would have them."""

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        self.tokenizer = cast("PreTrainedTokenizerBase", _NoTokenizer())
        self.notices: Counter[str] = Counter()

    def encode(self, rows: Sequence[Row]) -> list[Example | list[Example] | BadRow]:
        return [self._row(row) for row in rows]

    def _row(self, row: Row) -> Example | list[Example]:
        if row.kind == "pair":
            return [self._document(side) for side in sides_of(row)]
        return self._document(row)

    def _document(self, row: Row) -> Example:
        labels = [np.full(tokens, 0 if trained else IGNORE, np.int32) for tokens, trained in self._parts(row)]
        joined = np.concatenate([np.zeros(0, np.int32), *labels])
        return Example(np.zeros(len(joined), np.int32), joined, row.place)

    def _parts(self, row: Row) -> Iterator[tuple[int, bool]]:
        """Tokens and whether they carry loss, part by part."""
        if row.tokens is not None:
            yield len(row.tokens.get("input_ids") or ()), True
        elif row.text is not None:
            yield tokens_of(row.text), True
        elif row.messages is not None:
            for turn in row.messages:
                yield (
                    TURN + tokens_of(turn.get("content")),
                    not self.config.assistant_only_loss or turn["role"] == "assistant",
                )
        else:
            on_prompt = self.config.completion_only_loss is False
            for part, trained in ((row.prompt, on_prompt), (row.completion, True)):
                turns = part if isinstance(part, list) else [{"content": part}]
                yield sum(TURN + tokens_of(turn.get("content")) for turn in turns), trained
