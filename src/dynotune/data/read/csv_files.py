"""CSV and TSV: a header line, then one row a record. Every value is a string: nothing is guessed from its looks."""

import csv
from collections.abc import Iterator
from pathlib import Path

from dynotune.data.read import byte_streams
from dynotune.data.read.byte_streams import ByteStream, StreamFaultError, TooLarge
from dynotune.data.rows import BadRow, Place, Record
from dynotune.printable import beginning, printable

# Python's default of 131,072 characters a field is an error for long documents. The limit is the process's: there is no
# other way to set it, and a larger one breaks nobody. Rows are limited below.
csv.field_size_limit(2**31 - 1)


def read_csv(path: Path) -> Iterator[Record | BadRow]:
    """The rows of a `.csv` or `.tsv` file, gzipped or not. `place.line` is the line on which the row begins."""
    file = str(path)
    stream = ByteStream.open(path)
    delimiter = "\t" if ".tsv" in path.name else ","
    rows = 0
    try:
        stream.recognise()
        row_lines = _RowLines(stream)
        reader = csv.reader(row_lines, delimiter=delimiter, strict=True)
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
            line = reader.line_num + 1
            place = Place(file, line)
            row_lines.begin(line)
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
    except _RowTooLargeError as error:
        yield error.row.bad_row(Place(file, error.line))
        detail = "the file is left out from a row on that is too large: where the next one begins cannot be told"
        yield BadRow(Place(file), "row-too-large", f"{detail}; {rows:,} rows before it were read")
    except StreamFaultError as fault:
        yield BadRow(Place(file), fault.reason, f"{fault.detail}; {rows:,} rows before it were read")
    finally:
        stream.close()


class _RowTooLargeError(Exception):
    def __init__(self, row: TooLarge, line: int) -> None:
        super().__init__()
        self.row, self.line = row, line


class _RowLines:
    """The lines of a stream as text. A quotation mark that is never closed would make one row of the whole file."""

    def __init__(self, stream: ByteStream) -> None:
        self.lines = stream.lines()
        self.begin(1)

    def begin(self, line: int) -> None:
        """A row begins in this line."""
        self.line, self.head, self.size = line, b"", 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        if isinstance(line, TooLarge):
            raise _RowTooLargeError(TooLarge(self.head or line.head, self.size + line.size), self.line)
        self.head = self.head or line
        self.size += len(line)
        if self.size > byte_streams.LARGEST_ROW:
            raise _RowTooLargeError(TooLarge(self.head, self.size), self.line)
        # Undecodable bytes pass through as lone surrogates, so that one bad byte costs its row and not the file.
        return line.decode("utf-8", errors="surrogateescape")


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
