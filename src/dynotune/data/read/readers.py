"""One data file, whatever its type, as a stream of records and bad rows."""

from collections.abc import Callable, Iterator
from pathlib import Path

from dynotune.data.read.arrow_tables import read_arrow, read_parquet
from dynotune.data.read.csv_files import read_csv
from dynotune.data.read.json_files import read_json
from dynotune.data.read.json_lines import parse_line
from dynotune.data.rows import BadRow, Found, Line, Place, Record
from dynotune.errors import DataError
from dynotune.printable import printable

Reader = Callable[[Path], Iterator[Found]]

READERS: dict[str, Reader] = {
    ".jsonl": read_json,
    ".ndjson": read_json,
    ".json": read_json,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
}
"""How each type of file is read. A new type is a function and a line here."""

GZIPPED = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")


def data_suffix(path: Path) -> str | None:
    """The suffix that decides how `path` is read (`.jsonl` for `a.jsonl.gz`), or None for a file that is no data."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        suffix = Path(path.stem).suffix.lower()
        return suffix if suffix in GZIPPED else None
    return suffix if suffix in READERS else None


def read_records(path: Path | str) -> Iterator[Record | BadRow]:
    """Every row of a data file, in order: a `Record`, or a `BadRow` that says why it is none. As `read_rows`."""
    for row in read_rows(path):
        yield parse_line(row) if isinstance(row, Line) else row


def read_rows(path: Path | str) -> Iterator[Found]:
    """Every row of a data file, in order: lines of JSON unparsed, so that others may do it, and all else as records.

    A fault that ends the file early (cut gzip, damaged Parquet) is a `BadRow` without a line, after the rows before it.
    Memory is that of a few rows, whatever the size of the file. Raises `DataError` for a type of file that is not read.
    """
    path = Path(path)
    suffix = data_suffix(path)
    if suffix is None:
        known = ", ".join([*READERS, *(f"{name}.gz" for name in GZIPPED)])
        raise DataError(f"{printable(str(path))}: this type of file is not read. Known types: {known}.")
    try:
        yield from READERS[suffix](path)
    except OSError as error:
        yield BadRow(Place(str(path)), "unreadable-file", printable(error.strerror or str(error)))
