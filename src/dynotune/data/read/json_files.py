"""JSON files: lines or an array, told apart by content and not by name."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from dynotune.data.read.byte_streams import ByteStream, StreamFaultError
from dynotune.data.read.json_array import read_json_array
from dynotune.data.read.json_lines import read_json_lines
from dynotune.data.rows import BadRow, Found, Place, Record
from dynotune.printable import beginning, printable

_ARRAY_OF_OBJECTS = re.compile(rb"\s*\[\s*(?:\{|\]\s*\Z|\Z)")
"""`[` followed by an object: a row of JSON Lines that is an array of something else is left to the line reader."""

_LARGEST_OBJECT = 16 << 20
"""Bytes up to which a one-object file is parsed, only to name its keys in the error message."""


def read_json(path: Path) -> Iterator[Found]:
    """The rows of a `.json` or `.jsonl` file, gzipped or not."""
    file = str(path)
    stream = ByteStream.open(path)
    rows = 0
    try:
        stream.recognise()
        if not stream.head:
            yield BadRow(Place(file), "empty-file", "the file is empty")
            return
        named_json = path.name.removesuffix(".gz").endswith(".json")
        if _ARRAY_OF_OBJECTS.match(stream.head) or (named_json and stream.head.lstrip().startswith(b"[")):
            if not named_json:
                stream.notices.append("array-under-jsonl-name")
            reader: Iterator[Found] = read_json_array(stream, file)
        else:
            if named_json:
                _refuse_one_big_object(stream)
            reader = read_json_lines(stream, file)
        for row in reader:
            rows += 1
            if stream.notices and isinstance(row, Record):
                row.notices.extend(stream.notices)
                stream.notices.clear()
            yield row
        if rows == 0:
            yield BadRow(Place(file), "no-rows", "the file holds no rows, only space")
    except StreamFaultError as fault:
        read = f"; {rows:,} rows before it were read" if rows else ""
        yield BadRow(Place(file), fault.reason, fault.detail + read, beginning(stream.unfinished or stream.head))
    finally:
        stream.close()


def _refuse_one_big_object(stream: ByteStream) -> None:
    """A `.json` file that is one object over several lines holds no rows that could be told apart from the rest."""
    first_line = stream.head.lstrip().split(b"\n", 1)[0].rstrip()
    if not first_line.endswith((b"{", b"[", b",")) or first_line.endswith(b"},"):
        return
    keys = ""
    whole = b""
    for chunk in stream.chunks():
        whole += chunk
        if len(whole) > _LARGEST_OBJECT:
            break
    else:
        try:
            content = json.loads(whole)
        except (ValueError, RecursionError):
            keys = " (and it is not valid JSON)"
        else:
            keys = " with the keys " + ", ".join(printable(key, 40) for key in list(content)[:10])
    detail = (
        f"the file is one JSON object{keys}; give an array of rows or one row a line "
        "(`jq -c '.KEY[]' file.json > file.jsonl` takes the array under KEY out)"
    )
    raise StreamFaultError("object-instead-of-rows", detail)
