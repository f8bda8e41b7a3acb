"""Places in notebooks as their readers count: by cell, and by line in it."""

import re
from collections.abc import Mapping
from dataclasses import replace

from dynotune.audit.finding import Finding
from dynotune.audit.place import Place

MARK = "# -*- code of cell -*- "
"""How the line begins that stands above each cell's code (`read.python.source`). Nobody types it: a comment `# cell 9` in
a cell is its author's."""

_MARK = re.compile(rf"{re.escape(MARK)}(\d+)")


def with_cells(finding: Finding, texts: Mapping[str, str]) -> Finding:
    """The finding with cells in its places; itself where none is in a notebook. texts: as `Project.texts`."""
    if not any(place.file.endswith(".ipynb") for place in (finding.place, *finding.also)):
        return finding
    return replace(
        finding, place=_in_cell(finding.place, texts), also=tuple(_in_cell(place, texts) for place in finding.also)
    )


def _in_cell(place: Place, texts: Mapping[str, str]) -> Place:
    if not place.line or not place.file.endswith(".ipynb"):
        return place
    lines = texts.get(place.file, "").split("\n")
    for number in range(min(place.line, len(lines)), 0, -1):
        if found := _MARK.fullmatch(lines[number - 1]):
            return replace(place, cell=f"cell {found[1]}, line {place.line - number}")
    return place
