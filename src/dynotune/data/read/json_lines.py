"""JSON Lines: one object a line."""

from collections.abc import Iterator

from dynotune.data.read.byte_streams import ByteStream, TooLarge
from dynotune.data.read.strict_json import parse_object
from dynotune.data.rows import BadRow, Found, Line, Place, Record

_BLANK = b" \t\r\n"


def read_json_lines(stream: ByteStream, file: str) -> Iterator[Found]:
    """Every line that is not blank, unparsed but for the first. Raises `StreamFaultError` where the file breaks off.

    Lines are parsed here as long as a property of the file waits for a good row to be said with.
    """
    offset = stream.skipped
    crlf_seen = False
    for number, line in enumerate(stream.lines(), start=1):
        if isinstance(line, TooLarge):
            offset += line.size
            yield line.bad_row(Place(file, number))
            continue
        raw = line.strip(_BLANK)
        start, offset = offset, offset + len(line)
        if not raw:
            continue
        unparsed = Line(Place(file, number), raw, start + line.index(raw[:1]), line.endswith(b"\n"))
        says_crlf = not crlf_seen and line.endswith(b"\r\n")
        if not says_crlf and not stream.notices:
            yield unparsed
            continue
        row = parse_line(unparsed)
        if says_crlf and isinstance(row, Record):
            # Said once a file: it is a property of the file and not of each row.
            crlf_seen = True
            row.notices.append("crlf")
        yield row


def parse_line(line: Line) -> Record | BadRow:
    """The row that a line holds, under the file's own column names."""
    values = parse_object(line.raw, line.place, line.start)
    if isinstance(values, BadRow):
        if values.reason == "truncated-json" and not line.ended:
            values.detail = "the file ends inside this row, without a line end: it was probably cut short"
        return values
    return Record(line.place, values)
