"""An audit on one screen: at most 40 lines at 80 columns as at 140; everything with `--all`."""

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dynotune.audit.finding import Finding, Risk, Severity, severity
from dynotune.audit.plan.phases import When, phases
from dynotune.audit.run import Result
from dynotune.audit.show import words
from dynotune.show.grids import Line, Tone
from dynotune.show.terminal import STYLES

if TYPE_CHECKING:
    from rich.console import Console

LINES = 40
TONES = {Severity.ERROR: Tone.BAD, Severity.WARNING: Tone.DOUBT, Severity.NOTE: Tone.QUIET}
NARROWEST = 40
TO_DECIDE = 3
"""Lines on what is for the user to decide, where the screen is short."""


def show(result: Result, console: "Console", *, everything: bool = False, plan: bool = False) -> None:
    for line in screen(result, console.width, everything=everything, plan=plan):
        console.print(line.text, style=STYLES[line.tone], markup=False, highlight=False, soft_wrap=True)


def screen(result: Result, width: int, *, everything: bool = False, plan: bool = False) -> list[Line]:
    """The lines, none longer than `width`. Findings give way, the least at stake first; never what the end says."""
    width = max(width, NARROWEST)
    top = _wrapped(f"dynotune audit: {words.headline(result)}", width)
    bottom = list(_bottom(result, width, everything=everything, plan=plan))
    found = [list(_finding(one, result, width, everything=everything)) for one in result.findings]
    shown = _fitting(result, found, 10**9 if everything else LINES - len(top) - len(bottom) - 1)
    middle: list[Line] = []
    group = ""
    for finding, lines in zip(result.findings[:shown], found, strict=False):
        title = words.TITLES[finding.stake.what]
        if title != group:
            middle += [Line(""), Line(title)]
            group = title
        middle += lines
    if shown < len(found):
        left = result.findings[shown:]
        kinds = ", ".join(sorted({one.code for one in left}))
        middle += _wrapped(f"and {len(left)} more ({kinds}): `--all`", width, most=1)
    return [*top, *middle, *([Line("")] if middle else []), *bottom]


def _fitting(result: Result, found: list[list[Line]], room: int) -> int:
    """How many findings fit, with their titles and the line that counts the rest."""
    used, group = 0, ""
    for number, (finding, lines) in enumerate(zip(result.findings, found, strict=True)):
        title = words.TITLES[finding.stake.what]
        used += len(lines) + (2 if title != group else 0)
        group = title
        if used + (number + 1 < len(found)) > room:
            return number
    return len(found)


def _finding(finding: Finding, result: Result, width: int, *, everything: bool) -> Iterator[Line]:
    tone = TONES[severity(finding.stake)]
    head = f"{words.word(finding):<7} {finding.code} {words.where(finding)}  [{words.level(finding)}]"
    yield from _wrapped(head, width, tone=tone, most=2)
    yield from _wrapped(words.text(finding.message), width, indent=8, most=0 if everything else 4)
    kind = "for you to decide" if finding.remedy.risk is Risk.BEHAVIOURAL else str(finding.remedy.risk)
    effect = words.effect(finding, result)
    remedy = f"-> {words.text(finding.remedy.text)} ({kind}{f'; {effect}' if effect else ''})"
    yield from _wrapped(remedy, width, indent=8, most=0 if everything else 3)
    if everything:
        for line in details(finding):
            yield from _wrapped(line, width, indent=8, tone=Tone.QUIET)


def details(finding: Finding) -> Iterator[str]:
    """What a reader may want to know besides."""
    facts = words.facts(finding)
    if facts:
        yield f"facts: {facts}"
    if finding.stake.source:
        yield f"expected range: {words.text(finding.stake.source)}"
    if finding.also:
        yield f"see also: {', '.join(words.text(place) for place in finding.also)}"
    for what, said in (
        ("may break", finding.remedy.breaks),
        ("result", finding.remedy.accuracy),
        ("may be meant so", finding.deliberate),
        ("measure", finding.remedy.measure),
    ):
        if said:
            yield f"{what}: {words.text(said)}"
    yield f"effort: {finding.remedy.effort}; `dynotune rule {finding.code}` explains"


def _bottom(result: Result, width: int, *, everything: bool, plan: bool) -> Iterator[Line]:
    if plan:
        yield from plan_lines(result, width)
    else:
        yield from _to_decide(result, width, everything=everything)
    yield from _wrapped(words.keep(result), width, tone=Tone.GOOD if result.passed else Tone.QUIET)
    if everything and result.passed:
        named = ", ".join(f"{code} {words.name(code)}" for code in result.passed)
        yield from _wrapped(named, width, indent=2, tone=Tone.QUIET)
    yield from _wrapped(words.checked(result), width, tone=Tone.QUIET, most=0 if everything else 3)
    if everything:
        for missing in result.not_checked:
            yield from _wrapped(words.not_checked_line(missing), width, indent=2, tone=Tone.QUIET)
    for line in words.holes(result)[: None if everything else 2]:
        yield from _wrapped(line, width, tone=Tone.DOUBT, most=0 if everything else 3)
    for line in words.data(result)[: None if everything else 2]:
        yield from _wrapped(line, width, tone=Tone.QUIET, most=0 if everything else 3)
    said = [*words.not_read(result), *words.remarks(result)]
    for line in said if everything else said[:3]:
        yield from _wrapped(line, width, tone=Tone.DOUBT, most=0 if everything else 2)
    if not everything and len(said) > 3:
        yield Line(f"and {len(said) - 3} more remarks: `--all`", Tone.QUIET)
    for line in (words.answered(result), words.ceiling(result)):
        yield from _wrapped(line, width, tone=Tone.QUIET)
    if everything:
        for one in result.suppressed:
            until = f", until {one.by.until}" if one.by.until else ""
            reason = f"suppressed: {one.finding.code} at {words.where(one.finding)}: {words.text(one.by.reason)}{until}"
            yield from _wrapped(reason, width, indent=2, tone=Tone.QUIET)
    yield from _wrapped(words.bottleneck(result), width, most=2)
    yield from _wrapped(words.next_action(result), width, most=3)


def _to_decide(result: Result, width: int, *, everything: bool) -> Iterator[Line]:
    steps = [
        step
        for phase in phases(result.findings, result.cost, result.refused)
        if phase.when is When.DECIDE
        for step in phase.steps
    ]
    if not steps:
        return
    if everything:
        yield from _wrapped(str(When.DECIDE), width)
        for step in steps:
            yield from _wrapped(f"{step.code} {words.text(step.text)}", width, indent=2)
        return
    codes = ", ".join(dict.fromkeys(step.code for step in steps))
    yield from _wrapped(f"For you to decide, never applied: {codes}.", width, most=TO_DECIDE)


def plan_lines(result: Result, width: int) -> Iterator[Line]:
    """`--plan`: in which order to apply what."""
    number = 0
    for phase in phases(result.findings, result.cost, result.refused):
        yield from _wrapped(str(phase.when), width)
        for step in phase.steps:
            number += 1
            at = f" ({len(step.findings)} places)" if len(step.findings) > 1 else f" ({words.where(step.findings[0])})"
            by = " [--fix]" if step.by_fix else ""
            yield from _wrapped(f"{number}. {step.code}{at}{by}: {words.text(step.text)}", width, indent=2)
            if step.measures:
                yield from _wrapped(f"measure: {words.text(step.measures)}", width, indent=5, tone=Tone.QUIET)
    if number:
        yield Line("")


def _wrapped(text: str, width: int, *, indent: int = 0, tone: Tone = Tone.PLAIN, most: int = 0) -> list[Line]:
    """most: lines; the last one ends in `...` where there are more. 0: all."""
    if not text:
        return []
    room = width - indent
    lines = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    if most and len(lines) > most:
        lines = [*lines[: most - 1], f"{lines[most - 1][: room - 4].rstrip()} ..."]
    return [Line(" " * indent + line, tone) for line in lines]
