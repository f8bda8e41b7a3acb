"""Parquet and Arrow files, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynotune.data.rows import BadRow, Place, Record

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 256

NULL_KEYS = "arrow-null-keys-removed"
"""Notice: Arrow gives every object of a column the same keys and fills those a row does not have with null. A chat
template can tell `null` from absent, so these nulls are taken out again."""


def read_parquet(path: Path) -> Iterator[Record | BadRow]:
    """The rows of a Parquet file; `place.line` is the row's number from 1."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as table:
            yield from _rows(table.iter_batches(batch_size=BATCH_ROWS), str(path))
    except (pa.ArrowException, OSError) as error:
        yield BadRow(Place(str(path)), "unreadable-parquet", f"{error}")


def read_arrow(path: Path) -> Iterator[Record | BadRow]:
    """The rows of an Arrow file, in the stream form (as `datasets` writes it) or the file form."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            is_file_form = source.read(6) == b"ARROW1"
            source.seek(0)
            batches: Iterable[pa.RecordBatch]
            if is_file_form:
                reader = pa.ipc.open_file(source)
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            else:
                batches = pa.ipc.open_stream(source)
            yield from _rows(batches, str(path))
    except (pa.ArrowException, OSError) as error:
        yield BadRow(Place(str(path)), "unreadable-arrow", f"{error}")


def _rows(batches: Iterable[pa.RecordBatch], file: str) -> Iterator[Record | BadRow]:
    line = 0
    for large in batches:
        for start in range(0, large.num_rows, BATCH_ROWS):
            for values in large.slice(start, BATCH_ROWS).to_pylist():
                line += 1
                yield table_record(values, Place(file, line))
    if line == 0:
        yield BadRow(Place(file), "no-rows", "the table has no rows")


def table_record(values: dict[str, Any], place: Place) -> Record:
    """A record of a row that came through Arrow."""
    cleaned = {key: _without_nulls(value) for key, value in values.items()}
    changed = any(cleaned[key] is not values[key] for key in cleaned)
    return Record(place, cleaned, [NULL_KEYS] if changed else [])


def _without_nulls(value: Any) -> Any:
    """`value` without null-valued keys at any depth; the same object where there are none.

    A message's `content: null` stays: with tool calls it means something, and elsewhere it is a fault to report.
    """
    if isinstance(value, list):
        cleaned = [_without_nulls(item) for item in value]
        return cleaned if any(new is not old for new, old in zip(cleaned, value, strict=True)) else value
    if isinstance(value, dict):
        kept = {
            key: _without_nulls(item) for key, item in value.items() if item is not None or key in ("content", "value")
        }
        same = len(kept) == len(value) and all(kept[key] is value[key] for key in kept)
        return value if same else kept
    return value
