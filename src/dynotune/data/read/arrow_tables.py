"""Parquet and Arrow files, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynotune.data.read import byte_streams
from dynotune.data.read.byte_streams import TooLarge
from dynotune.data.rows import BadRow, Place, Record
from dynotune.printable import beginning, printable

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 256

NULL_KEYS = "arrow-null-keys-removed"
"""Notice: Arrow gives every object of a column the same keys and fills those a row does not have with null. A chat
template can tell `null` from absent, so these nulls are taken out again."""


OUT_OF_RANGE = "time-out-of-range"
"""Notice: a date, time or duration beyond what Python can express is kept as the table's integer."""

UNREADABLE = (ValueError, OverflowError, LookupError)
"""What pyarrow raises at a cell that it can store and not convert: bytes that are not UTF-8, the year 300,000, an
unknown time zone, two keys of one name."""


def read_parquet(path: Path) -> Iterator[Record | BadRow]:
    """The rows of a Parquet file; `place.line` is the row's number from 1."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as table:
            yield from _rows(table.iter_batches(batch_size=BATCH_ROWS), str(path))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        yield BadRow(Place(str(path)), "unreadable-parquet", printable(str(error), 500))


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
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        yield BadRow(Place(str(path)), "unreadable-arrow", printable(str(error), 500))


def _rows(batches: Iterable[pa.RecordBatch], file: str) -> Iterator[Record | BadRow]:
    line = 0
    for large in batches:
        names = large.schema.names
        if len(set(names)) != len(names):
            twice = printable(next(name for name in names if names.count(name) > 1), 60)
            yield BadRow(Place(file), "duplicate-key", f"the table has two columns named '{twice}'")
            return
        for start in range(0, large.num_rows, BATCH_ROWS):
            for row in batch_rows(large.slice(start, BATCH_ROWS), file, line):
                line += 1
                yield row
    if line == 0:
        yield BadRow(Place(file), "no-rows", "the table has no rows")


def batch_rows(batch: pa.RecordBatch | pa.Table, file: str, before: int) -> Iterator[Record | BadRow]:
    """The rows of a batch that `before` rows precede. A cell that Python cannot hold costs its row at most."""
    if batch.nbytes > byte_streams.LARGEST_ROW and batch.num_rows > 1:
        for i in range(batch.num_rows):
            yield from batch_rows(batch.slice(i, 1), file, before + i)
        return
    if batch.nbytes > byte_streams.LARGEST_ROW:
        yield TooLarge(b"", batch.nbytes).bad_row(Place(file, before + 1))
        return
    try:
        rows = batch.to_pylist()
    except UNREADABLE:
        for i in range(batch.num_rows):
            yield _row_by_cells(batch, i, Place(file, before + i + 1))
        return
    for line, values in enumerate(rows, start=before + 1):
        yield table_record(values, Place(file, line))


def _row_by_cells(batch: pa.RecordBatch | pa.Table, row: int, place: Place) -> Record | BadRow:
    import pyarrow as pa

    values: dict[str, Any] = {}
    notices = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        cell = column[row]
        try:
            values[name] = cell.as_py()
        except UnicodeDecodeError as error:
            detail = f"the column '{printable(name, 60)}' is not UTF-8: {error.reason} at byte {error.start:,}"
            return BadRow(place, "invalid-utf8", detail, beginning(error.object))
        except UNREADABLE as error:
            if not pa.types.is_temporal(cell.type):
                detail = f"the column '{printable(name, 60)}' cannot be read: {printable(str(error), 200)}"
                return BadRow(place, "unreadable-cell", detail)
            values[name] = cell.value
            notices.append(OUT_OF_RANGE)
    record = table_record(values, place)
    record.notices += dict.fromkeys(notices)
    return record


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
