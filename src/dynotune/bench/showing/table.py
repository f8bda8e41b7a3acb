"""Several results in one table: a row for each arm and result, and what changed since the first."""

from collections.abc import Sequence

from dynotune.bench.judging.sentence import name
from dynotune.bench.keeping.between import Change, changes
from dynotune.printable import printable
from dynotune.results import phrases
from dynotune.results.comparable import hidden
from dynotune.results.result import Arm, Result
from dynotune.show.grids import Grid, Line, Tone
from dynotune.show.terminal import cropped

LONGEST = 26
"""Characters of a result's name that are shown: its date, and the end by which it differs."""


def beside(results: Sequence[Result]) -> Grid:
    """The first result is what the others are held against."""
    first = results[0]
    since = {id(one): {change.arm: change for change in changes(first, one)} for one in results[1:]}
    rows = []
    for arm in dict.fromkeys(arm.name for one in results for arm in one.arms):
        for one in results:
            mine = next((each for each in one.arms if each.name == arm), None)
            theirs = next((each for each in first.arms if each.name == arm), None)
            rows.append(_row(one, arm, mine, theirs, since.get(id(one), {}).get(arm)))
    head = ("arm", "result", "real tok/s/device", "since the first", "peak GiB", "since")
    return Grid("results beside one another", head, tuple(rows), spare=(5, 4))


def _row(one: Result, arm: str, mine: Arm | None, first: Arm | None, change: Change | None) -> tuple[Line, ...]:
    shut = hidden(one)
    value = None if mine is None or mine.failed else mine.per_second("real_tokens")
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
        Line(cropped(printable(one.name, 200), LONGEST)),
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
