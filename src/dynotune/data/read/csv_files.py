"""CSV and TSV: a header line, then one row a record. Every value is a string: nothing is guessed from its looks."""

import csv
from collections.abc import Iterator
from pathlib import Path

from dynotune.data.printable import beginning, printable
from dynotune.data.read.byte_streams import ByteStream, StreamFaultError
from dynotune.data.rows import BadRow, Place, Record

# Python's default of 131,072 characters a field is an error for long documents. The limit is the process's: there is no
# other way to set it, and a larger one breaks nobody.
csv.field_size_limit(2**31 - 1)


def read_csv(path: Path) -> Iterator[Record | BadRow]:
    """The rows of a `.csv` or `.tsv` file, gzipped or not. `place.line` is the line on which the row begins."""
    file = str(path)
    stream = ByteStream.open(path)
    delimiter = "\t" if ".tsv" in path.name else ","
    rows = 0
    try:
        stream.recognise()
        # Undecodable bytes pass through as lone surrogates, so that one bad byte costs its row and not the file.
        text = (line.decode("utf-8", errors="surrogateescape") for line in stream.lines())
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        try:
            header = next(reader, None)
        except csv.Error as error:
            yield BadRow(Place(file, 1), "invalid-csv", f"the header cannot be read: {error}")
            return
        if header is None:
            yield BadRow(Place(file), "empty-file", "the file is empty")
            return
        if len(set(header)) != len(header):
            twice = printable(next(name for name in header if header.count(name) > 1), 60)
            yield BadRow(Place(file), "duplicate-key", f"the header names the column '{twice}' twice")
            return
        while True:
            place = Place(file, reader.line_num + 1)
            try:
                cells = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                rows += 1
                yield BadRow(place, "invalid-csv", f"{error} (a quotation mark out of place, or one never closed)")
                continue
            if not cells:
                continue
            rows += 1
            row = _row(header, cells, place)
            if stream.notices and isinstance(row, Record):
                row.notices.extend(stream.notices)
                stream.notices.clear()
            yield row
        if rows == 0:
            yield BadRow(Place(file), "no-rows", "the file has a header and no rows")
    except StreamFaultError as fault:
        yield BadRow(Place(file), fault.reason, f"{fault.detail}; {rows:,} rows before it were read")
    finally:
        stream.close()


def _row(header: list[str], cells: list[str], place: Place) -> Record | BadRow:
    joined = ",".join(cells)
    raw = joined.encode("utf-8", errors="surrogateescape")
    try:
        joined.encode("utf-8")
    except UnicodeEncodeError as error:
        byte = ord(joined[error.start]) & 0xFF
        return BadRow(place, "invalid-utf8", f"the byte {byte:02X} in this row is not UTF-8", beginning(raw))
    if len(cells) != len(header):
        detail = f"{len(cells)} cells under a header of {len(header)} columns ({', '.join(header)})"
        return BadRow(place, "wrong-number-of-cells", printable(detail, 300), beginning(joined))
    return Record(place, dict(zip(header, cells, strict=True)))
