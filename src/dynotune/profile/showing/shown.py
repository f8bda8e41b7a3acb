"""A profile in words, once for all who show it: the terminal, Markdown, the page. Text of others is escaped here."""

from collections.abc import Iterator
from dataclasses import dataclass

from dynotune.measure.kernel_classes import Work
from dynotune.printable import printable
from dynotune.profile.analysis.analyse import BOTTLENECK, label
from dynotune.profile.analysis.findings import Findings, Remedy, Row
from dynotune.show.grids import Grid, Line, Tone

LONGEST = 300
"""Characters of a sentence."""

NEAR, FAR = 1.15, 2.0
"""Times its floor up to which a class is near it, and from which on it is far."""

NOTHING = "nothing worth doing: no setting that is known here could still save 2 % of the step"


@dataclass(frozen=True, slots=True)
class Shown:
    """In the order in which it stands."""

    title: str
    figures: tuple[str, ...]
    grid: Grid
    bottleneck: Line
    found: tuple[Line, ...]
    remedies: tuple[tuple[Line, str], ...]
    """Each with the command that measures it, of any length: nobody can run half of one."""

    ruled_out: tuple[Line, ...]

    expected: tuple[Line, ...]
    placement: tuple[str, ...]
    unknown: tuple[str, ...]
    kernels: Grid


def shown(one: Findings) -> Shown:
    return Shown(
        title=_text(one.title),
        figures=tuple(_figures(one)),
        grid=_grid(one),
        bottleneck=Line(_text(one.bottleneck), Tone.GOOD if one.clean else Tone.BAD),
        found=tuple(Line(_text(finding.sentence), Tone.DOUBT) for finding in one.found)
        or (Line("clean: nothing was found that holds the run back", Tone.GOOD),),
        remedies=tuple((Line(remedy_in_words(each)), printable(each.command)) for each in one.remedies)
        or ((_no_remedy(one) or Line(NOTHING, Tone.GOOD), ""),),
        ruled_out=(*_of_the_bottleneck(one), *(Line(_text(line), Tone.QUIET) for line in one.ruled_out)),
        expected=tuple(_expected(one)),
        placement=tuple(_text(line) for line in one.placement),
        unknown=tuple(_text(line) for line in one.cannot_know),
        kernels=_kernels(one),
    )


def _no_remedy(one: Findings) -> Line | None:
    """Where the bottleneck is something that was found, and nothing is known to mend it: that is no answer of "nothing worth
    doing"."""
    dear = next((each for each in one.found if one.bottleneck == f"{BOTTLENECK}{each.sentence}."), None)
    if dear is None or dear.remedy is not None:
        return None
    where = "" if one.on_device else " on a CPU"
    return Line(f"the bottleneck ({dear.name}): no setting is known for it{where}", Tone.DOUBT)


def _of_the_bottleneck(one: Findings) -> tuple[Line, ...]:
    """The same, below the remedies of other things."""
    line = _no_remedy(one) if one.remedies else None
    return (line,) if line is not None else ()


def remedy_in_words(one: Remedy) -> str:
    """`at most 1.64x  exact  make batches ahead (speedups.prefetch=on)`."""
    most = "predicted" if one.certain else "at most"
    gain = "any" if one.ceiling == float("inf") else f"{one.ceiling:.2f}x"
    setting = f" ({_text(one.setting)})" if one.setting else ""
    how = f"{most} {gain}" if one.saves > 0 else "no gain in time"
    first = f"; to measure it, {_text(one.first)}" if one.first else ""
    return f"{how}, {one.kind}: {_text(one.text)}{setting}{first}"


def _figures(one: Findings) -> Iterator[str]:
    spread = f" ± {100 * one.spread:.1f} %" if one.spread is not None else ""
    yield f"{one.steps} steps, {ms(one.step_seconds)} each{spread}"
    if one.tokens_per_second is not None:
        yield f"{one.tokens_per_second:,.0f} real tokens/s"
    if one.fill is not None:
        yield f"fill {100 * one.fill:.1f} %"
    if one.memory:
        yield one.memory
    if one.profiler_slowdown is not None:
        yield f"under the profiler {one.profiler_slowdown:.2f} times as long"
    if one.warm_up:
        yield f"warm-up: {_text(one.warm_up)}"


def _grid(one: Findings) -> Grid:
    head = ("class", "ms", "share", "floor ms", "times floor", "above it ms")
    rows = [_row(row, one.on_device) for row in one.rows]
    if rows:
        total = one.step_seconds
        rows.append((Line("a step"), Line(_number(total)), Line("100 %"), Line(""), Line(""), Line("")))
    if one.hidden_communication > 0:
        hidden = Line(_number(one.hidden_communication), Tone.QUIET)
        name = Line("(communication that is hidden)", Tone.QUIET)
        rows.append((name, hidden, Line(""), Line(""), Line(""), Line("")))
    return Grid("where the time of a step goes", head, tuple(rows), spare=(5, 3))


def _row(row: Row, on_device: bool) -> tuple[Line, ...]:
    idle = row.work in (Work.DATA, Work.RANKS) or (row.work is Work.HOST and on_device)
    times = row.seconds / row.floor if row.floor and not row.beaten else None
    compared = f"{times:.2f}" if times is not None else "beaten" if row.beaten else ""
    tone = Tone.PLAIN if times is None else Tone.GOOD if times <= NEAR else Tone.BAD if times >= FAR else Tone.DOUBT
    known = row.floor is not None and not (row.work is Work.HOST and not on_device)
    return (
        Line(label(row.work, on_device)),
        Line(_number(row.seconds)),
        Line(f"{100 * row.share:.1f} %"),
        Line(_number(row.floor) if known and row.floor is not None else ""),
        Line(compared if known else "", Tone.BAD if idle else Tone.DOUBT if row.beaten else tone),
        Line(_number(row.above) if known else ""),
    )


def _expected(one: Findings) -> Iterator[Line]:
    if one.floor_tokens_per_second is not None and one.tokens_per_second is not None:
        share = one.tokens_per_second / one.floor_tokens_per_second
        yield Line(
            f"{100 * share:.0f} % of the {one.floor_tokens_per_second:,.0f} real tokens/s that the same operations would"
            " give, each at its floor and nothing idle"
        )
    if one.expected is not None:
        tone = Tone.GOOD if one.expected.share >= 0.9 else Tone.DOUBT
        rate = f"{one.expected.tokens_per_second:,.0f} real tokens/s a device"
        yield Line(f"{100 * one.expected.share:.0f} % of {rate}: {_text(one.expected.what)}", tone)
    elif one.no_expectation:
        yield Line(f"no comparison: {_text(one.no_expectation)}", Tone.QUIET)


def _kernels(one: Findings) -> Grid:
    head = ("name", "class", "ms a step", "count")
    rows = tuple(
        (Line(_text(name, 120)), Line(label(work, one.on_device)), Line(_number(seconds)), Line(f"{count:,}"))
        for name, work, seconds, count in one.kernels
    )
    return Grid("the longest kernels" if one.on_device else "the longest operators, under the profiler", head, rows)


def ms(seconds: float) -> str:
    return f"{_number(seconds)} ms"


def _number(seconds: float) -> str:
    """Milliseconds, with as many digits as mean something."""
    value = 1e3 * seconds
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _text(text: str, most: int = LONGEST) -> str:
    return printable(text, most)
