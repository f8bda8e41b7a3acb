"""Tables, and text of others, as Markdown."""

import re

from dynotune.show.grids import Grid

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "://": "&#58;//"}
"""What a backslash would not make plain: a name called, and an address that needs no brackets to be a link."""


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
