"""Files that a notebook's cells (`%%writefile train.py`) or a shell script (`cat > ds.json <<'EOF'`) write before they use
them: read as if they lay there, with places in the text that writes them."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dynotune.audit.cells import MARK
from dynotune.audit.place import Place

_CELL = re.compile(r"# ?%%(?:writefile|file)\s+(?!-)[\"']?([\w./-]+)[\"']?\s*$")
"""One that is added to a file (`-a`) is a part of it alone."""

_HERE = re.compile(
    r"^\s*(?:cat|tee)\b(?P<words>[^\n<]*)<<-?\s*(?P<quote>[\"']?)(?P<end>\w+)(?P=quote)(?P<behind>[^\n]*)$"
)
_TO = re.compile(r"(?<!>)>\s*[\"']?([\w./-]+)[\"']?")
MOST = 40
"""Files of one text; more are generated."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    name: str
    """From the project's folder."""

    text: str
    home: Place
    """Of its first line, in the text that writes it."""


def written_by_cells(file: str, source: str) -> Iterator[WrittenFile]:
    """Of a notebook's code, as it is read: every line of a cell with a `%%` is a comment."""
    folder = posixpath.dirname(file)
    lines = source.split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith(MARK)]
    count = 0
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):  # none in a notebook without code
        found = _CELL.match(lines[start + 1]) if start + 1 < end else None
        name = posixpath.normpath(posixpath.join(folder, found[1])) if found is not None else ""
        if name and not name.startswith(("..", "/")) and count < MOST:
            count += 1
            text = "\n".join(line.removeprefix("# ").removeprefix("#") for line in lines[start + 2 : end])
            yield WrittenFile(name, text, Place(file, start + 3))


def written_by_shell(file: str, text: str) -> Iterator[WrittenFile]:
    """Of a shell script: what its documents in place say, where no variable stands in them that would be filled in."""
    lines = text.split("\n")
    number, count = 0, 0
    while number < len(lines) and count < MOST:
        found = _HERE.match(lines[number]) if "<<" in lines[number] else None
        number += 1
        if found is None:
            continue
        start = number
        while number < len(lines) and lines[number].strip() != found["end"]:
            number += 1
        body = "\n".join(lines[start:number]) + "\n"
        name = _target(found)
        if name and (found["quote"] or not re.search(r"[$`]", body)):
            count += 1
            yield WrittenFile(name, body, Place(file, start + 1))


def _target(found: re.Match[str]) -> str:
    """The file that the command writes; empty: none, one that it adds to, or one that cannot be told."""
    words = f"{found['words']} {found['behind']}"
    if ">>" in words or "$" in words or "|" in words or "tee -a" in found[0]:
        return ""
    named = _TO.search(words) or (re.fullmatch(r"\s*([\w./-]+)\s*", found["words"]) if "tee" in found[0] else None)
    name = posixpath.normpath(named[1]) if named is not None else ""
    return "" if name.startswith(("..", "/")) else name
