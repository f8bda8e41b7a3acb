"""Places as readers find them: in notebooks by cell and by line in it, of a file that another writes in that one."""

import re
from collections.abc import Mapping
from dataclasses import replace

from dynotune.audit.finding import Finding
from dynotune.audit.place import Place

MARK = "# -*- code of cell -*- "
"""How the line begins that stands above each cell's code (`read.python.source`). Nobody types it: a comment `# cell 9` in
a cell is its author's."""

_MARK = re.compile(rf"{re.escape(MARK)}(\d+)")


def where_written(finding: Finding, written: Mapping[str, Place]) -> Finding:
    """The finding with places in the text that writes a file, instead of in the file, which is not there. It proposes no
    change then. written: as `Project.written`."""
    if not any(place.file in written for place in (finding.place, *finding.also)):
        return finding

    def home(place: Place) -> Place:
        start = written.get(place.file)
        if start is None:
            return place
        first, last = max(place.line, 1) - 1, max(place.end_line, place.line, 1) - 1
        return Place(start.file, start.line + first, 0, start.line + last, 0, place.key)

    remedy = replace(finding.remedy, changes=())
    return replace(finding, place=home(finding.place), also=tuple(map(home, finding.also)), remedy=remedy)


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
