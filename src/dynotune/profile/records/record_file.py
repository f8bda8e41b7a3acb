"""Records as files: JSON, packed with gzip."""

import gzip
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dynotune.errors import DataError
from dynotune.printable import printable
from dynotune.profile.records.record import FORMAT, Record

LARGEST = 1 << 30
"""Bytes of a record, unpacked, that are read."""


@cache
def _adapter() -> TypeAdapter[Record]:
    return TypeAdapter(Record)


def to_json(record: Record) -> bytes:
    return _adapter().dump_json(record)


def of_json(text: bytes, named: str = "the record") -> Record:
    """Raises `DataError` for what is no record of this format."""
    try:
        record = _adapter().validate_json(text)
    except (ValidationError, KeyError, IndexError, TypeError, ValueError) as error:
        first = printable(str(error).splitlines()[0], 200)
        raise DataError(
            f"{named} is no record of a profile: {first}. Write one with `dynotune profile --record FILE`."
        ) from error
    if record.format != FORMAT:
        raise DataError(f"{named} has format {record.format}; this version reads {FORMAT}. Profile the run again.")
    return record


def write_record(record: Record, path: Path) -> None:
    """Packed with gzip. Raises `OSError`."""
    path.write_bytes(gzip.compress(to_json(record), 6, mtime=0))


def read_record(path: Path) -> Record:
    """Raises `DataError` or `OSError`."""
    try:
        with gzip.open(path, "rb") as packed:
            text = packed.read(LARGEST + 1)
    except (gzip.BadGzipFile, EOFError) as error:
        raise DataError(f"{printable(str(path))} is no record of a profile: {error}.") from error
    if len(text) > LARGEST:
        raise DataError(f"{printable(str(path))} is larger than a record can be.")
    return of_json(text, printable(str(path)))
