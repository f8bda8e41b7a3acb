"""Several results in one table: a row for each arm and result, and what changed since the first.

Names begin with the same day and end in the same words and commit: cut to a column's width, results of one day had one name.
So they are numbered, and a legend gives their names whole.
"""

from collections.abc import Sequence

from dynotune.bench.judging.sentence import name
from dynotune.bench.keeping.between import Change, changes
from dynotune.printable import printable
from dynotune.results import phrases
from dynotune.results.comparable import hidden
from dynotune.results.result import Arm, Result
from dynotune.show.grids import Grid, Line, Tone

LONGEST = 200
"""Characters of a result's name that are shown: more than any has that was kept."""


def legend(results: Sequence[Result]) -> list[Line]:
    """The name of each by the number that it has in the table, with its day and commit in it."""
    return [Line(f"{number}: {printable(one.name, LONGEST)}", Tone.QUIET) for number, one in enumerate(results, 1)]


def beside(results: Sequence[Result]) -> Grid:
    """The first result is what the others are held against."""
    first = results[0]
    since = {id(one): {change.arm: change for change in changes(first, one)} for one in results[1:]}
    rows = []
    for arm in dict.fromkeys(arm.name for one in results for arm in one.arms):
        for number, one in enumerate(results, 1):
            mine = next((each for each in one.arms if each.name == arm), None)
            theirs = next((each for each in first.arms if each.name == arm), None)
            rows.append(_row(one, number, arm, mine, theirs, since.get(id(one), {}).get(arm)))
    head = ("arm", "result", "tok/s/device", "since the first", "peak GiB", "since")
    return Grid("results beside one another", head, tuple(rows), spare=(5, 4))


def _row(
    one: Result, number: int, arm: str, mine: Arm | None, first: Arm | None, change: Change | None
) -> tuple[Line, ...]:
    shut = hidden(one)
    value = None if mine is None or mine.failed else mine.per_second("tokens")
    if mine is None:
        speed = Line("no such arm", Tone.DOUBT)
    elif mine.failed is not None:
        speed = Line(mine.failure, Tone.BAD)
    elif arm in shut:
        speed = Line("not comparable", Tone.BAD)
    else:
        speed = Line(phrases.rate(None if value is None else value / one.devices_of(mine)))
    memory = None if mine is None else mine.memory
    before = None if first is None else first.memory
    more = Line("")
    if change is not None and memory is not None and before is not None:
        more = Line(phrases.more_gib(memory.allocated - before.allocated))
    return (
        Line(name(arm)),
        Line(f"{number}"),
        speed,
        _since(change),
        Line("" if memory is None else phrases.gib(memory.allocated)),
        more,
    )


def _since(change: Change | None) -> Line:
    if change is None or change.ratio is None:
        return Line("")
    if phrases.holds_one(change.ratio):
        return Line(phrases.gain(change.ratio), Tone.QUIET)
    return Line(phrases.gain(change.ratio), Tone.GOOD if change.ratio.estimate > 1 else Tone.BAD)
