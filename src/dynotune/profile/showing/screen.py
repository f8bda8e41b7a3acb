"""A profile on one screen: at most 40 lines, at 80 columns as at 140. What gives way is on the page.

A command is one line, however long: the terminal folds it, and it can be copied whole. It is left out rather than cut.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynotune.profile.analysis.analyse import BOTTLENECK
from dynotune.profile.analysis.findings import Findings
from dynotune.profile.showing.shown import shown
from dynotune.show.grids import Line, Tone
from dynotune.show.terminal import STYLES, grid, written

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

LINES = 40


def show(findings: Findings, console: "Console", files: Sequence[str] = ()) -> None:
    """Print it. files: what was written, by name."""
    for line in screen(findings, console.width, files):
        console.print(line, soft_wrap=True, highlight=False)


def screen(findings: Findings, width: int, files: Sequence[str] = ()) -> "list[Text]":
    """The lines, of which only commands are longer than `width`."""
    from rich.text import Text

    one = shown(findings)
    lines = _wrapped(Line(f"profile  {one.title}"), width, 2)
    lines += _wrapped(Line("; ".join(one.figures), Tone.QUIET), width, 3)
    table = grid(one.grid, width) if one.grid.rows else []
    lines += table
    lines += _wrapped(one.bottleneck, width, 3, style="bold")
    end = _expectations(one.expected, width)
    tail = _wrapped(Line(f"written: {written(files)}", Tone.QUIET), width, 5) if files else []
    placement = [part for text in one.placement for part in _wrapped(Line(text, Tone.QUIET), width, 1)]
    unknown = [part for text in one.unknown for part in _wrapped(Line(f"not known: {text}", Tone.DOUBT), width, 2)]
    room = LINES - len(lines) - len(tail)
    before = "" if findings.clean else "found: "
    found = [part for line in one.found for part in _wrapped(Line(f"{before}{line.text}", line.tone), width, 2)]
    said = one.bottleneck.text.removeprefix(BOTTLENECK).rstrip(".")
    found = found if len(one.found) > 1 or one.found[0].text != said else []
    remedies, first = [Text("what would help", style="dim")], 0
    for i, (line, command) in enumerate(one.remedies, 1):
        remedies += _wrapped(Line(f"{i}. {line.text}", line.tone), width, 4)
        remedies += [Text(f"   {command}", style=STYLES[Tone.QUIET])] if command else []
        first = first or _height(remedies, width) + (i < len(one.remedies))  # with the line that says what was left out
    remedies += [part for line in one.ruled_out for part in _wrapped(line, width, 2)]
    # The first to give way is the last here.
    parts = [found, remedies, end, placement, unknown]
    heights = [_height(part, width) for part in parts]
    least = [min(most, height) for most, height in zip((4, max(7, first), 2, 2, 2), heights, strict=True)]
    spare = max(0, room - sum(least))
    for k, part in enumerate(parts):
        take = min(heights[k], least[k] + spare)
        spare -= take - least[k]
        lines += _cut(part, take, width)
    return [*lines, *tail]


def _expectations(lines: Sequence[Line], width: int) -> "list[Text]":
    return [part for line in lines for part in _wrapped(line, width, 2)]


def _height(lines: "Sequence[Text]", width: int) -> int:
    """Lines of the screen that these take, which folds what is longer."""
    return sum(max(1, -(-line.cell_len // width)) for line in lines)


def _cut(lines: "list[Text]", room: int, width: int) -> "list[Text]":
    """The first ones, each whole, and how many are left out."""
    from rich.text import Text

    if _height(lines, width) <= room:
        return lines
    kept = len(lines)
    while kept and _height(lines[:kept], width) > room - 1:
        kept -= 1
    left = _height(lines[kept:], width)
    return [*lines[:kept], Text(f"... {left} more lines on the page", style="dim")] if room > 0 else []


def _wrapped(line: Line, width: int, most: int, style: str = "") -> "list[Text]":
    """On at most so many lines of the screen; the last one says where it was cut."""
    from rich.cells import set_cell_size
    from rich.console import Console
    from rich.text import Text

    text = Text(line.text, style=f"{style} {STYLES[line.tone]}".strip())
    parts = list(text.wrap(Console(width=width), width, overflow="fold"))
    if len(parts) > most:
        rest = set_cell_size(" ".join(part.plain.strip() for part in parts[most - 1 :]), width - 3).rstrip()
        parts = [*parts[: most - 1], Text(f"{rest}...", style=text.style)]
    for part in parts:
        part.rstrip()
    return parts
