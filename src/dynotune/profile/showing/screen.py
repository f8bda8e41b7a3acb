"""A profile on one screen: at most 40 lines, at 80 columns as at 140. What gives way is on the page."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

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
    """The lines, none longer than `width`."""
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
    said = one.bottleneck.text.removeprefix("The bottleneck: ").rstrip(".")
    found = found if len(one.found) > 1 or one.found[0].text != said else []
    remedies = [Text("what would help", style="dim")]
    for i, (line, command) in enumerate(one.remedies, 1):
        remedies += _wrapped(Line(f"{i}. {line.text}", line.tone), width, 2)
        remedies += _wrapped(Line(f"   {command}", Tone.QUIET), width, 1) if command else []
    remedies += [part for line in one.ruled_out for part in _wrapped(line, width, 2)]
    # The first to give way is the last here.
    least = (min(4, len(found)), min(7, len(remedies)), min(2, len(end)), min(2, len(placement)), min(2, len(unknown)))
    parts = [found, remedies, end, placement, unknown]
    spare = max(0, room - sum(least))
    for k, part in enumerate(parts):
        take = min(len(part), least[k] + spare)
        spare -= take - least[k]
        lines += _cut(part, take)
    return [*lines, *tail]


def _expectations(lines: Sequence[Line], width: int) -> "list[Text]":
    return [part for line in lines for part in _wrapped(line, width, 2)]


def _cut(lines: "list[Text]", room: int) -> "list[Text]":
    from rich.text import Text

    if len(lines) <= room:
        return lines
    return [*lines[: max(0, room - 1)], Text(f"... {len(lines) - room + 1} more lines on the page", style="dim")][:room]


def _wrapped(line: Line, width: int, most: int, style: str = "") -> "list[Text]":
    """On at most so many lines of the screen; the last one says where it was cut."""
    from rich.cells import set_cell_size
    from rich.console import Console
    from rich.text import Text

    text = Text(line.text, style=f"{style} {STYLES[line.tone]}".strip())
    parts = list(text.wrap(Console(width=width), width, overflow="fold"))
    if len(parts) > most:
        rest = set_cell_size(" ".join(part.plain for part in parts[most - 1 :]), width - 3).rstrip()
        parts = [*parts[: most - 1], Text(f"{rest}...", style=text.style)]
    for part in parts:
        part.rstrip()
    return parts
