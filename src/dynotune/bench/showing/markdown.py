"""A result as Markdown, for a pull request: what the terminal shows, whole, with the command below it."""

import re
from collections.abc import Sequence

from dynotune.bench.result import Result
from dynotune.bench.showing.grids import Grid
from dynotune.bench.showing.shown import shown
from dynotune.config.secrets import masked
from dynotune.data.printable import printable

COMMAND = 2000
"""Characters of a command that are shown."""

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "://": "&#58;//"}
"""What a backslash would not make plain: a name called, and an address that needs no brackets to be a link."""


def markdown(result: Result, files: Sequence[str] = ()) -> str:
    """files: where the whole result lies, by name."""
    one = shown(result)
    parts = [f"### bench: {escaped(one.operating_point)}"]
    if one.withdrawn:
        parts.append(f"> **{escaped(one.withdrawn)}**")
    parts.append(f"**{escaped(one.sentence)}**")
    parts.append(" · ".join(escaped(text) for text in one.conditions))
    parts.append(table(one.grid))
    lines = [line.text for line in (*one.said, *one.expectations)]
    lines += [one.engagement.text] if one.engagement is not None else []
    lines += [*one.differences, *(f"note: {note}" for note in one.notes), *([one.sample] if one.sample else [])]
    parts.append("\n".join(f"- {escaped(text)}" for text in lines))
    commit = f"commit {escaped(printable(result.commit, 40))}, " if result.commit else ""
    parts.append(
        f"{escaped(printable(result.name, 100))}, {printable(result.date[:10])}, {commit}"
        f"definitions {result.definitions}, seed {result.seed}"
    )
    parts.append(fenced(printable(masked(result.command), COMMAND)))
    if files:
        parts.append("Whole result: " + ", ".join(escaped(printable(file, 200)) for file in files))
    return "\n\n".join(part for part in parts if part) + "\n"


def table(grid: Grid) -> str:
    columns = [i for i in range(len(grid.head)) if i == 0 or any(row[i].text for row in grid.rows)]
    lines = [
        [escaped(grid.head[i]) for i in columns],
        ["---" if i == 0 or grid.head[i] == "maths" else "---:" for i in columns],
        *([escaped(row[i].text) for i in columns] for row in grid.rows),
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def escaped(text: str) -> str:
    """Text of others as text: no tags, links, images, code, cells, lists or emphasis, and nobody is called by name."""
    return re.sub(r"^[+-](?= )|[&<>@\\`*|#~]|\](?=[(\[:])|://|(?<!\w)_|_(?!\w)", lambda found: _neutral(found[0]), text)


def _neutral(mark: str) -> str:
    return _ENTITIES.get(mark, f"\\{mark}")


def fenced(text: str) -> str:
    """A block of code that its text cannot end."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}sh\n{text}\n{fence}"
