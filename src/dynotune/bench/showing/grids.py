"""Tables of a result: the arms, and the changes of a ladder or an attribution, cell by cell in words.

Text of others is escaped here.
"""

from collections.abc import Sequence

from dynotune.bench.judging.sentence import name
from dynotune.config.load import ONE_SPEEDUP
from dynotune.results import phrases
from dynotune.results.comparable import asked_about, hidden, label_of_kind, maths, parity_of, why_not
from dynotune.results.result import Arm, Comparison, Engaged, Result, Verdict
from dynotune.show.grids import Grid, Line, Tone

MOST = 200
"""Rows of a table, and lines of one kind, that are shown."""


KINDS = ("behavioural", "numeric")
"""Words of which one stands on every line that quotes the speed of such an arm."""

ROLES = {"alone": "alone", "last": "added last", "interaction": "interaction", "step": "this step"}
"""Columns of changes, by the role of what stands in them."""

PEAK = "peak GiB (reserved)"

REAL = "real tokens/step"
"""What a sweep of batches, lengths or micro-batches changes beside its speed."""

TOLD_BENEATH = (ROLES["step"], ROLES["last"], "memory", REAL, PEAK)
"""Columns that are told row by row where a narrow terminal has no room for them; `maths` has a line of its own."""


def arms(result: Result) -> Grid:
    """A row for each arm: its rates, fill and memory. One that ran out of memory is a row like any other.

    The ratio never gives way: of a sweep it stands nowhere else. Real tokens of a step are a sweep's alone: elsewhere
    they are those of the other arm, or a difference in words tells them.
    """
    head = ("arm", REAL, "tok/s/device", "MFU", "fill", "s/step", PEAK, "against first", "maths")
    shut = hidden(result)
    rows = tuple(_arm_row(result, arm, shut.get(arm.name), first=i == 0) for i, arm in enumerate(result.arms))
    return Grid("arms", head, rows[:MOST], spare=(5, 4, 3, 1, 6))


def _arm_row(result: Result, arm: Arm, why: str | None, *, first: bool) -> tuple[Line, ...]:
    peak = Line("")
    if arm.memory is not None:
        reserved = "" if arm.memory.reserved is None else f" ({phrases.gib(arm.memory.reserved)})"
        peak = Line(f"{phrases.gib(arm.memory.allocated)}{reserved}")
    parity = None if first else parity_of(result, arm.name)
    word = Line("baseline", Tone.QUIET) if first else Line(maths(parity, short=True), _tone_of_maths(result, arm.name))
    real = Line(phrases.rate(arm.real_tokens_a_step) if result.kind == "sweep" else "")
    if arm.failed is not None:
        return (Line(name(arm.name)), Line(""), Line(arm.failure, Tone.BAD), *(Line(""),) * 3, peak, *(Line(""),) * 2)
    if why is not None:
        not_shown = Line("not comparable", Tone.BAD)
        return (
            Line(name(arm.name)),
            real,
            not_shown,
            Line(""),
            Line(phrases.share(arm.fill)),
            Line(""),
            peak,
            Line(""),
            word,
        )
    value = arm.per_second("tokens")
    return (
        Line(name(arm.name)),
        real,
        Line(phrases.rate(None if value is None else value / result.devices_of(arm))),
        Line(phrases.share(arm.mfu)),
        Line(phrases.share(arm.fill)),
        Line(phrases.seconds(arm.seconds_a_step)),
        peak,
        _without(_against_first(result, arm), word.text),
        word,
    )


def _against_first(result: Result, arm: Arm) -> Line:
    for one in result.comparisons:
        if one.role == "whole" and one.arm == arm.name and one.against == result.arms[0].name:
            return speed_cell(result, one)
    return Line("")


def _without(cell: Line, said: str) -> Line:
    """A speed without the kind of its updates where the row says it already: both together are as wide as half a screen."""
    text, _, kind = cell.text.rpartition(" ")
    return Line(text, cell.tone) if kind in KINDS and kind in said else cell


def changes(result: Result) -> Grid:
    """A row for each change of a ladder, an attribution, or both."""
    roles = [role for role in ROLES if any(one.role == role for one in result.comparisons)]
    head = ("change", "engaged", *(ROLES[role] for role in roles), "memory", "maths")
    rows = []
    for label in dict.fromkeys(one.label for one in result.comparisons if one.role not in ("whole", "interaction")):
        mine: dict[str, Comparison] = {one.role: one for one in result.comparisons if one.label == label}
        of = [mine.get(role) for role in roles]
        first = next(one for one in of if one is not None) if any(of) else next(iter(mine.values()))
        cells = _kind_once([Line("") if one is None else speed_cell(result, one) for one in of])
        rows.append(
            (
                Line(name(label)),
                _engaged_cell(result, first, label),
                *cells,
                _memory_cell(result, first),
                Line(maths(parity_of(result, first.arm, first.against)), _tone_of_maths(result, first.arm)),
            )
        )
    spare = (ROLES["interaction"], "maths", "memory", *(["this step"] if len(roles) > 1 else []))
    return Grid("changes", head, tuple(rows[:MOST]), spare=tuple(head.index(one) for one in spare if one in head))


def speed_cell(result: Result, one: Comparison) -> Line:
    """`+6.2 % [5.8, 6.6]`, or why there is none."""
    if why_not(result, one) is not None:
        return Line("not comparable", Tone.BAD)
    if one.ratio is None:
        return Line("not measured", Tone.DOUBT)
    kind = label_of_kind(result, *asked_about(result, one))
    text = phrases.gain(one.ratio) + (f" {kind}" if kind else "")
    tones = {Verdict.FASTER: Tone.GOOD, Verdict.SLOWER: Tone.BAD, Verdict.SAME: Tone.QUIET}
    if one.verdict is Verdict.SUSPECT:
        return Line(f"{text} SUSPECT", Tone.BAD)
    return Line(text, tones.get(one.verdict, Tone.DOUBT))


def _kind_once(cells: list[Line]) -> list[Line]:
    """`behavioural` or `numeric` stands on a line that quotes several speeds of a change once: it is long."""
    found, said = [], set()
    for cell in cells:
        text, _, word = cell.text.rpartition(" ")
        found.append(Line(text, cell.tone) if word in said else cell)
        if word in KINDS:
            said.add(word)
    return found


def _engaged_cell(result: Result, one: Comparison, label: str) -> Line:
    """Of the speed-up that a change is; of another key, of those that it brings: none, and the cell is empty."""
    by_name = {arm.name: arm.engaged for arm in result.arms}
    mine, theirs = ([seen for seen in by_name.get(arm, ()) if _ran(seen)] for arm in (one.arm, one.against))
    key, written, _ = label.partition("=")
    if not written or key.startswith(ONE_SPEEDUP):
        found = [seen for seen in mine if seen.name == key.removeprefix(ONE_SPEEDUP)]
        if not found:
            return Line("off", Tone.QUIET) if label.endswith("=off") else Line("unknown", Tone.DOUBT)
    else:
        found = [seen for seen in mine if seen.name not in {other.name for other in theirs}]
    wanting = [seen for seen in found if seen.state != "engaged"]
    if wanting:
        named = len(found) > 1
        return Line(", ".join(f"{name(seen.name)} " * named + count(seen) for seen in wanting), Tone.BAD)
    if len(found) > 1 and all(seen.seen is not None and seen.expected for seen in found):
        return Line(f"{sum(seen.seen or 0 for seen in found)}/{sum(seen.expected or 0 for seen in found)}")
    return Line(count(found[0]) if found else "")


def _ran(one: Engaged) -> bool:
    return one.state not in ("left out", "out")


def _memory_cell(result: Result, one: Comparison) -> Line:
    by_name = {arm.name: arm.memory for arm in result.arms}
    mine, theirs = by_name.get(one.arm), by_name.get(one.against)
    if mine is None or theirs is None:
        return Line("")
    return Line(phrases.more_gib(mine.allocated - theirs.allocated))


def beneath(table: Grid, heads: Sequence[str]) -> list[list[str]]:
    """Columns for which there was no room, as a line each, in parts that are not to be torn apart: what was asked for may
    not be lost with them.

    heads: of columns that were left out; those that other lines tell are none of these.
    """
    found = []
    for head in (head for head in heads if head in TOLD_BENEATH):
        cells = [_of_row(row, table.head.index(head)) for row in table.rows]
        found.append([f"{head}, by row:", *(f"{cell};" for cell in cells[:-1]), *cells[-1:]])
    return found


def _of_row(row: Sequence[Line], column: int) -> str:
    """A cell by itself, with the kind of its updates where another cell says it."""
    text = row[column].text or "-"
    kinds = [kind for kind in KINDS if any(kind in cell.text for cell in row) and kind not in text and "[" in text]
    return " ".join([text, *kinds])


def _tone_of_maths(result: Result, arm: str) -> Tone:
    parity = parity_of(result, arm)
    if parity is None or parity.state == "not checked":
        return Tone.DOUBT
    return {"differs": Tone.BAD, "behavioural": Tone.DOUBT}.get(parity.state, Tone.PLAIN)


def count(one: Engaged) -> str:
    if one.seen is None or not one.expected:
        return one.state if one.state == "engaged" else one.state.upper()
    return f"{one.seen}/{one.expected}" + ("" if one.state == "engaged" else f" {one.state.upper()}")
