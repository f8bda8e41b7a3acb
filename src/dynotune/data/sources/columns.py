"""`columns:`, a mapping of our names to the file's, or a list of the columns to keep."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import overload

from dynotune.data.read.json_lines import parse_line
from dynotune.data.rows import BadRow, Found, Line, Record
from dynotune.printable import printable, row_beginning

Columns = Mapping[str, str] | Sequence[str] | None


def parsed(row: Found) -> Record | BadRow:
    """The row, parsed where that was left to us, under the column names that it was to get."""
    return with_columns(parse_line(row), row.columns) if isinstance(row, Line) else row


@overload
def with_columns(row: Record | BadRow, columns: Columns) -> Record | BadRow: ...
@overload
def with_columns(row: Found, columns: Columns) -> Found: ...
def with_columns(row: Found, columns: Columns) -> Found:
    """The row under its new column names.

    A mapping renames and keeps the other columns; where our name was taken by another column, the mapped one wins. A
    list keeps only those named. A column that the row does not have makes it bad.
    """
    if not columns or isinstance(row, BadRow):
        return row
    if isinstance(row, Line):
        return replace(row, columns=columns)
    values = row.values
    wanted = list(columns.values()) if isinstance(columns, Mapping) else list(columns)
    missing = [name for name in wanted if name not in values]
    if missing:
        has = ", ".join(printable(str(name), 40) for name in values) or "none"
        detail = f"`columns` asks for '{missing[0]}', and the columns that exist are: {has}"
        return BadRow(row.place, "mapped-column-missing", detail, row_beginning(values))
    if isinstance(columns, Mapping):
        kept = {name: value for name, value in values.items() if name not in wanted and name not in columns}
        kept |= {ours: values[theirs] for ours, theirs in columns.items()}
    else:
        kept = {name: values[name] for name in wanted}
    return Record(row.place, kept, row.notices)
