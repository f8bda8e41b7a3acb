"""Tables and lines for a terminal of a given width, with colours by what they mean."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from dynotune.printable import printable
from dynotune.show.grids import Grid, Line, Tone

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {Tone.PLAIN: "", Tone.GOOD: "green", Tone.BAD: "bold red", Tone.DOUBT: "yellow", Tone.QUIET: "dim"}

GAP = 2
"""Columns between those of a table."""

WORDS = ("class", "change", "arm", "maths", "name", "machine", "result")
"""Columns of words, which stand to the left; figures stand to the right."""

NARROWEST = 10
"""Of the column with names."""


def wrapped(lines: Sequence[Line], width: int, each: int, most: int = 60, style: str = "") -> "list[Text]":
    """Each on at most `each` lines of the screen."""
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console
    from rich.text import Text

    console, found = Console(width=width), []
    for line in lines[:most]:
        text = Text(line.text, style=style or STYLES[line.tone])
        parts = list(text.wrap(console, width, overflow="fold"))
        if len(parts) > each:
            rest = " ".join(part.plain.strip() for part in parts[each - 1 :])
            end = set_cell_size(rest, width - 3).rstrip() if cell_len(rest) > width - 3 else rest
            parts = [*parts[: each - 1], Text(f"{end}...", style=style or STYLES[line.tone])]
        for part in parts:
            part.rstrip()
        found += parts
    if len(lines) > most:
        found.append(Text(f"... {len(lines) - most} more on the page", style="dim"))
    return found


def grid(table: Grid, width: int) -> "list[Text]":
    """A table without rules: the first column to the left, figures to the right, words to the left.

    What is too wide leaves columns out that may be, then cuts names in their middle, where sweeps differ least.
    """
    from rich.cells import cell_len
    from rich.text import Text

    columns, sizes = _fitting(table, width)
    words = {i for i in columns if table.head[i] in WORDS}
    lines = []
    for row in (tuple(Line(text, Tone.QUIET) for text in table.head), *table.rows):
        line = Text()
        for i in columns:
            text = row[i].text if i else cropped(row[i].text, sizes[0])
            pad = " " * (sizes[i] - cell_len(text))
            cell = text + pad if i in words else pad + text
            line.append(" " * GAP * (i != 0) + cell, style=STYLES[row[i].tone])
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines


def left_out(table: Grid, width: int) -> list[str]:
    """Heads of the columns that hold something and for which there is no room."""
    columns, _ = _fitting(table, width)
    return [table.head[i] for i in sorted(_filled(table)) if i not in columns]


def _filled(table: Grid) -> list[int]:
    return [
        i for i in range(len(table.head)) if table.head[i] == "" or any(row[i].text for row in table.rows) or i == 0
    ]


def _fitting(table: Grid, width: int) -> tuple[list[int], dict[int, int]]:
    """The columns that are shown, and how wide each is."""
    from rich.cells import cell_len

    columns = _filled(table)
    sizes = {i: max(cell_len(text) for text in (table.head[i], *(row[i].text for row in table.rows))) for i in columns}
    rest = 0
    for i in (None, *table.spare):
        if i is not None and i in columns:
            columns.remove(i)
        rest = sum(sizes[j] + GAP for j in columns[1:])
        if width - rest >= min(sizes[0], 2 * NARROWEST):
            break
    sizes[0] = min(sizes[0], max(NARROWEST, width - rest))
    return columns, sizes


def cropped(text: str, columns: int) -> str:
    """Head and tail of a name that is too long."""
    from rich.cells import cell_len

    if cell_len(text) <= columns:
        return text
    head = max(1, (columns - 1) // 3)
    tail = columns - 1 - head
    while tail > 1 and cell_len(f"{text[:head]}…{text[-tail:]}") > columns:
        tail -= 1
    return f"{text[:head]}…{text[-tail:]}"


def written(files: Sequence[str]) -> str:
    """Names of files, each folder named once behind its own, so that nothing has to be cut off."""
    folders: dict[str, list[str]] = {}
    for file in files:
        folders.setdefault(str(PurePath(file).parent), []).append(printable(PurePath(file).name, 200))
    said = [
        ", ".join(names) + ("" if folder == "." else f" in {printable(folder, 200)}")
        for folder, names in folders.items()
    ]
    return "; ".join(said)
