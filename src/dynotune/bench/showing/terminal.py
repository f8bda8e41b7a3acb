"""A result on one screen: at most 25 lines, at 80 columns as at 140."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynotune.bench.showing.grids import beneath
from dynotune.bench.showing.shown import Shown, maths_in_a_line, shown
from dynotune.results.result import Result
from dynotune.show.grids import Line, Tone
from dynotune.show.terminal import grid, left_out, wrapped, written

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

LINES = 25

LEAST = 6
"""Lines of the table, and of what is said of it, that a long closing sentence leaves."""

SAID = 6
"""Lines below the table, which it leaves where it has many rows: the verdict of the whole, and columns that had no room."""


def show(result: Result, console: "Console", files: Sequence[str] = ()) -> None:
    """Print it. files: what was written, by name."""
    for line in screen(result, console.width, files):
        console.print(line, soft_wrap=True, highlight=False)


def screen(result: Result, width: int, files: Sequence[str] = ()) -> "list[Text]":
    """The lines, none longer than `width`. Where room is short, what a page shows too gives way: rows of the table behind
    the first ones, notes, differences; never verdicts of the whole, expectations, the closing sentence, whose end is where
    its caveat stands."""
    one = shown(result)
    top = wrapped([Line(one.withdrawn, Tone.BAD)] if one.withdrawn else [], width, 3)
    top += wrapped([Line(f"bench  {one.operating_point}")], width, 2)
    top += wrapped([Line(text, Tone.QUIET) for text in _filled(one.conditions, width)], width, 1)[:3]
    judged = sorted(one.expectations, key=lambda line: line.tone is not Tone.BAD)  # what is not met gives way last
    bottom = wrapped(judged, width, 1, most=6)
    end = wrapped([Line(f"written: {written(files)}", Tone.QUIET)] if files else [], width, 5)
    most = max(3, LINES - len(top) - len(bottom) - len(end) - LEAST)
    bottom += [*wrapped([Line(one.sentence)], width, most, style="bold"), *end]
    table = grid(one.grid, width)
    room = LINES - len(top) - len(bottom)
    said = _beside_the_table(one, width)
    spare = _spare(one, width)
    for_table = min(len(table), max(4, room - min(len(said), SAID)))
    table = _cut(table, for_table, "rows")
    said = _cut(said, room - len(table), "lines")
    spare = _cut(spare, room - len(table) - len(said), "lines")
    return [*top, *table, *said, *spare, *bottom]


def _beside_the_table(one: Shown, width: int) -> "list[Text]":
    """Verdicts, behind that of the whole what the table had no room for."""
    without = left_out(one.grid, width)
    whole, rest = one.said[: one.of_the_whole], one.said[one.of_the_whole :]
    told = [text for parts in beneath(one.grid, without) for text in _filled(parts, width, " ")]
    lines = wrapped(whole, width, 2) + wrapped([Line(text) for text in told], width, 1)
    return lines + wrapped([*rest, *([maths_in_a_line(one.grid)] if "maths" in without else [])], width, 2)


def _filled(parts: Sequence[str], width: int, between: str = "   ") -> list[str]:
    """As many on a line as fit, none torn apart."""
    lines = [parts[0]]
    for part in parts[1:]:
        together = f"{lines[-1]}{between}{part}"
        lines = [*lines[:-1], together] if len(together) <= width else [*lines, part]
    return lines


def _spare(one: Shown, width: int) -> "list[Text]":
    lines = wrapped([one.engagement] if one.engagement is not None else [], width, 2)
    lines += wrapped([Line(text) for text in one.differences], width, 2)
    lines += wrapped([Line(f"note: {text}", Tone.DOUBT) for text in one.notes], width, 2)
    return lines + wrapped([Line(one.sample, Tone.QUIET)] if one.sample else [], width, 2)


def _cut(lines: "list[Text]", room: int, what: str) -> "list[Text]":
    """The first ones; the last line that there is room for says how many there are besides."""
    from rich.text import Text

    if len(lines) <= room:
        return lines
    if room < 1:
        return []
    return [*lines[: room - 1], Text(f"... {len(lines) - room + 1} more {what} on the page", style="dim")]
