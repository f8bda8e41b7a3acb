"""A JSON array of objects, read element by element in bounded memory.

`json.load` needs the whole file and gives up at the first fault. Here a scanner finds where each element ends (it
knows strings and brackets, nothing else) and the strict parser sees one element at a time, so a bad element costs
itself only.
"""

import re
from collections.abc import Iterator

from dynotune.data.read import byte_streams
from dynotune.data.read.byte_streams import CHUNK, ByteStream, StreamFaultError, TooLarge
from dynotune.data.read.strict_json import parse_object
from dynotune.data.rows import BadRow, Place, Record

_STRUCTURE = re.compile(rb'["\[\]{},]')
_REST_OF_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_SPACE = b" \t\r\n"


def read_json_array(stream: ByteStream, file: str) -> Iterator[Record | BadRow]:
    """A record or bad row for every element; `place.line` is the line on which it begins. Raises `StreamFaultError`."""
    for count, (line, raw, last) in enumerate(_elements(stream), start=1):
        place = Place(file, line)
        if isinstance(raw, TooLarge):
            yield raw.bad_row(place)
            continue
        if not raw:
            if count == 1 and last:
                return
            yield BadRow(place, "trailing-comma", f"element {count:,} of the array is empty: a comma too many")
            continue
        values = parse_object(raw, place, where=f"element {count:,} of the array")
        yield values if isinstance(values, BadRow) else Record(place, values)


def _elements(stream: ByteStream) -> Iterator[tuple[int, bytes | TooLarge, bool]]:
    """(line, content, whether it is the last) of every element of the array."""
    buffer = b""
    start = 0  # where the present element begins in the buffer
    at = 0  # scanned up to here
    line = 1  # the line of `start`
    depth = 0
    in_string = done = False
    head, dropped, dropped_lines = b"", 0, 0  # of an element that is too large
    for chunk in stream.chunks():
        if depth and at - start > byte_streams.LARGEST_ROW:
            head = head or buffer[start : start + CHUNK]
            dropped, dropped_lines = dropped + at - start, dropped_lines + buffer.count(b"\n", start, at)
            start = at
        buffer, start, at = buffer[start:] + chunk, 0, at - start
        while at < len(buffer) and not done:
            if in_string:
                found = _REST_OF_STRING.match(buffer, at)
                assert found is not None
                at = found.end()
                if buffer[at : at + 1] != b'"':
                    break  # the chunk ends inside the string, perhaps inside an escape
                at, in_string = at + 1, False
                continue
            found = _STRUCTURE.search(buffer, at)
            if found is None:
                at = len(buffer)
                break
            mark, at = found.group(), found.end()
            if mark == b'"':
                in_string = True
            elif depth == 1 and mark in (b",", b"]"):
                element = buffer[start : found.start()]
                beginning = head or element
                text = beginning.lstrip(_SPACE)
                done = mark == b"]"
                size = dropped + len(element)
                too_large = size > byte_streams.LARGEST_ROW
                content = TooLarge(text[:CHUNK], size) if too_large else text.rstrip(_SPACE)
                yield line + beginning.count(b"\n", 0, len(beginning) - len(text)), content, done
                line, start = line + dropped_lines + element.count(b"\n"), at
                head, dropped, dropped_lines = b"", 0, 0
            elif mark == b"[" and depth == 0:
                line, start, depth = line + buffer.count(b"\n", start, at), at, 1
            elif mark in (b"[", b"{"):
                depth += 1
            elif depth > 1 and mark != b",":
                depth -= 1  # a closing brace too many at depth 1 stays in its element, which the parser then refuses
        if done and buffer[at:].strip(_SPACE):
            raise StreamFaultError("text-after-array", f"something follows the end of the array in line {line:,}")
        if done:
            buffer, start, at = b"", 0, 0
    if not done:
        raise StreamFaultError(
            "truncated-json", f"the array is not closed; the element after line {line:,} is cut short"
        )
