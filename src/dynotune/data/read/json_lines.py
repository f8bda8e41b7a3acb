"""JSON Lines: one object a line."""

from collections.abc import Iterator

from dynotune.data.read.byte_streams import ByteStream, TooLarge
from dynotune.data.read.strict_json import parse_object
from dynotune.data.rows import BadRow, Place, Record

_BLANK = b" \t\r\n"


def read_json_lines(stream: ByteStream, file: str) -> Iterator[Record | BadRow]:
    """A record or bad row for every line that is not blank. Raises `StreamFaultError` where the file breaks off."""
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
        place = Place(file, number)
        values = parse_object(raw, place, start + line.index(raw))
        if isinstance(values, BadRow):
            if values.reason == "truncated-json" and not line.endswith(b"\n"):
                values.detail = "the file ends inside this row, without a line end: it was probably cut short"
            yield values
            continue
        record = Record(place, values)
        if not crlf_seen and line.endswith(b"\r\n"):
            # Said once a file: it is a property of the file and not of each row.
            crlf_seen = True
            record.notices.append("crlf")
        yield record
