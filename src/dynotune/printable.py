"""Text from data that may be shown on a terminal.

A data set can hold escape sequences that move the cursor, change the window's title or reverse the direction of
text, so nothing of it is printed as it is.
"""

import json
from collections.abc import Mapping
from typing import Any

BEGINNING = 160
"""How many characters of a row are shown."""


def printable(text: str | bytes, limit: int | None = None) -> str:
    """`text` with everything but printable characters escaped, cut to `limit` characters of the original.

    Bytes that are not UTF-8 appear as `\\xNN`, lone surrogates as `\\udNNN`.
    """
    if isinstance(text, bytes):
        # A character takes at most four bytes; a sequence that the cut tears apart falls beyond `limit`.
        head = text if limit is None else text[: 4 * limit + 4]
        text = head.decode("utf-8", errors="backslashreplace")
    cut = limit is not None and len(text) > limit
    shown = text[:limit] if cut else text
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
    return shown + "..." if cut else shown


def beginning(text: str | bytes) -> str:
    """The first characters of a row, for an error message."""
    return printable(text, BEGINNING)


def row_beginning(values: Mapping[str, Any]) -> str:
    """The first characters of a row that was read, as JSON."""
    return beginning(json.dumps(values, ensure_ascii=False, default=str, skipkeys=True))
