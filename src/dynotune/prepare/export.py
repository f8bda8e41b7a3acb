"""Examples as rows that other trainers read: Parquet or JSON Lines, one document a row or several packed into one.

An unpacked row has `input_ids`, `labels` and `attention_mask`. A packed row holds whole documents up to a number of tokens
and has `position_ids`, which start anew with each document, and `seq_lengths`, as TRL's packing writes them; its
`attention_mask` is 1 throughout, since trainers that isolate documents go by the positions.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dynotune.data.examples import IGNORE, Examples
from dynotune.errors import ConfigError, DataError
from dynotune.plan.packing import pack_step
from dynotune.printable import printable

if TYPE_CHECKING:
    from dynotune.plan.content import Content
    from dynotune.plan.truncation import Spans

_ROWS_TOGETHER = 1_000
_ROWS_PACKED_TOGETHER = 100_000
"""Documents that share bins. Bounds memory; larger groups pack no better."""

Row = dict[str, list[int]]


@dataclass(frozen=True)
class ExportKind:
    """How rows are written."""

    form: str
    """`parquet` or `jsonl`."""

    is_folder: bool
    packed: int | None

    @classmethod
    def of(cls, path: Path, packed: int | None) -> ExportKind:
        """Raises `ConfigError` for a name that says no form, or a bin that holds nothing."""
        if packed is not None and packed < 2:
            raise ConfigError(f"flag --export_packed: a row of {packed} tokens holds nothing that can be trained on.")
        if path.suffix in (".parquet", ".jsonl"):
            return cls(path.suffix[1:], False, packed)
        if path.suffix or path.is_file():
            raise ConfigError(f"flag --export: {printable(str(path))}: give a .parquet or .jsonl file, or a folder.")
        return cls("parquet", True, packed)

    def beside(self, path: Path, name: str) -> Path:
        """Where an evaluation set goes when the training data goes to `path`."""
        return path if self.is_folder else path.with_name(f"{path.stem}-{_safe(name)}{path.suffix}")

    def file(self, path: Path, name: str = "train") -> Path:
        return path / f"{_safe(name)}.parquet" if self.is_folder else path


def export_examples(content: Content, path: Path, kind: ExportKind, name: str = "train") -> str:
    """Write the used part of the documents of `content`, in its order. Returns a sentence on what was written.

    The file is complete or absent. Raises `DataError` where it cannot be written or is there already, or a document is
    longer than a packed row.
    """
    examples, spans, rows = content.examples, content.spans, content.rows
    file = kind.file(path, name)
    refuse_existing(file)
    beside = file.with_name(f".{file.name[:200]}.{os.urandom(4).hex()}")
    documents = spans.lengths_of(rows)
    if kind.packed is not None and len(documents) and int(documents.max()) > kind.packed:
        raise DataError(
            f"--export_packed {kind.packed}: a document has {int(documents.max()):,} tokens and is never cut in two."
            " Pack into longer rows, or set `max_length` to at most that."
        )
    made = _packed(examples, spans, rows, kind.packed) if kind.packed else _unpacked(examples, spans, rows)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("xb") as open_:
            count = _write_parquet(open_, made, kind) if kind.form == "parquet" else _write_jsonl(open_, made)
        refuse_existing(file)  # one that has come meanwhile
        beside.replace(file)
    except OSError as error:
        raise DataError(f"{printable(str(file))}: cannot be written ({error.strerror or error}).") from error
    finally:  # whatever stopped it, Ctrl-C too
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
    how = f"rows of up to {kind.packed:,} tokens from {len(rows):,} documents" if kind.packed else "rows"
    return f"{count:,} {how} to {printable(str(file))}"


def refuse_existing(file: Path) -> None:
    """Raises `DataError` where the file is there: it may be the very data that is exported."""
    if os.path.lexists(file):
        raise DataError(f"--export: {printable(str(file))} is there already. Remove it, or export to another name.")


def _unpacked(examples: Examples, spans: Spans, rows: NDArray[np.int64]) -> Iterator[Row]:
    for row in rows.tolist():
        ids_T, labels_T = _document(examples, spans, row)
        yield {"input_ids": ids_T.tolist(), "labels": labels_T.tolist(), "attention_mask": [1] * len(ids_T)}


def _packed(examples: Examples, spans: Spans, rows: NDArray[np.int64], tokens: int) -> Iterator[Row]:
    for start in range(0, len(rows), _ROWS_PACKED_TOGETHER):
        some = rows[start : start + _ROWS_PACKED_TOGETHER]
        for members in pack_step(spans.lengths_of(some), tokens):
            documents = [_document(examples, spans, int(some[one])) for one in members]
            lengths = [len(ids_T) for ids_T, _ in documents]
            yield {
                "input_ids": np.concatenate([ids_T for ids_T, _ in documents]).tolist(),
                "labels": np.concatenate([_without_first(labels_T) for _, labels_T in documents]).tolist(),
                "attention_mask": [1] * sum(lengths),
                "position_ids": np.concatenate([np.arange(length) for length in lengths]).tolist(),
                "seq_lengths": lengths,
            }


def _document(examples: Examples, spans: Spans, row: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    start, end = spans.start[row], spans.end[row]
    return examples.ids[start:end], examples.labels[start:end]


def _without_first(labels_T: NDArray[np.int32]) -> NDArray[np.int32]:
    """A document's first token carries no loss; in a packed row it would be predicted from another document."""
    return np.concatenate([np.full(1, IGNORE, np.int32), labels_T[1:]])


def _write_parquet(file: IO[bytes], rows: Iterator[Row], kind: ExportKind) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    wide = {"input_ids": pa.int32(), "labels": pa.int32(), "attention_mask": pa.int8()}
    if kind.packed:
        wide |= {"position_ids": pa.int32(), "seq_lengths": pa.int32()}
    schema = pa.schema([(name, pa.list_(type_)) for name, type_ in wide.items()])
    count = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while some := list(islice(rows, _ROWS_TOGETHER)):
            writer.write_table(pa.Table.from_pylist(some, schema))
            count += len(some)
    return count


def _write_jsonl(file: IO[bytes], rows: Iterator[Row]) -> int:
    count = 0
    for row in rows:
        file.write(json.dumps(row, separators=(",", ":")).encode("ascii") + b"\n")
        count += 1
    return count


def _safe(name: Any) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in str(name))
