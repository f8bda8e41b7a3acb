"""An audit as a page in one file."""

from collections.abc import Iterator

from dynotune.audit.finding import Finding, Risk, severity
from dynotune.audit.lines import lines_of
from dynotune.audit.plan.phases import phases
from dynotune.audit.run import Result
from dynotune.audit.secret_values import Secrets
from dynotune.audit.show import words
from dynotune.audit.show.terminal import TONES, details
from dynotune.printable import printable
from dynotune.show.grids import Grid, Line, Tone
from dynotune.show.page import Banner, Code, Fold, Heading, Lead, Lines, Part, Section, Table, render

AROUND = 2
"""Lines of a file that are shown above a finding and below it."""

LONGEST = 160
"""Characters of such a line."""


def html(result: Result) -> str:
    """The whole file."""
    return render("dynotune audit", [Section(words.looked_at(result), tuple(_parts(result)))])


def _parts(result: Result) -> Iterator[Part]:
    yield Lead(words.headline(result))
    wrong = sum(words.word(one) == "error" for one in result.findings)
    if not result.checked:
        yield Banner("No rule could be checked.")
    elif wrong:
        yield Banner(f"Errors: {wrong}. They come before anything about speed.")
    yield Lines((Line(words.bottleneck(result)), Line(words.next_action(result))))
    if result.findings:
        yield Table(_grid(result))
    group = ""
    for finding in result.findings:
        title = words.TITLES[finding.stake.what]
        if title != group:
            yield Heading(title)
            group = title
        yield from _finding(finding, result)
    yield from _plan(result)
    yield Heading("Checked")
    yield Lines(
        tuple(Line(text) for text in (words.keep(result), words.checked(result), words.ceiling(result)) if text)
    )
    if result.passed:
        yield Fold(
            f"Keep as is: {len(result.passed)}",
            (Lines(tuple(Line(f"{code} {words.name(code)}") for code in result.passed)),),
        )
    said = [
        *words.holes(result),
        *words.data(result),
        *words.not_read(result),
        *words.remarks(result),
        *map(words.not_checked_line, result.not_checked),
    ]
    if said:
        yield Fold(f"Not checked, not read, remarks: {len(said)}", (Lines(tuple(Line(text) for text in said)),))
    if result.suppressed:
        lines = tuple(
            Line(f"{one.finding.code} at {words.where(one.finding)}: {words.text(one.by.reason)}")
            for one in result.suppressed
        )
        yield Fold(f"Suppressed: {len(lines)}", (Lines(lines),))


def _grid(result: Result) -> Grid:
    rows = tuple(
        (
            Line(f"{finding.code} {words.name(finding.code)}"),
            Line(words.word(finding), TONES[severity(finding.stake)]),
            Line(words.where(finding)),
            Line(words.effect(finding, result) or str(finding.stake.what)),
            Line(str(finding.remedy.risk)),
            Line(words.level(finding)),
        )
        for finding in result.findings
    )
    return Grid("findings", ("rule", "severity", "where", "at stake", "remedy", "evidence"), rows)


def _finding(finding: Finding, result: Result) -> Iterator[Part]:
    tone = TONES[severity(finding.stake)]
    kind = "for you to decide" if finding.remedy.risk is Risk.BEHAVIOURAL else str(finding.remedy.risk)
    yield Lines(
        (
            Line(f"{words.word(finding)} {finding.code} {words.where(finding)}", tone),
            Line(words.text(finding.message)),
            Line(f"{words.text(finding.remedy.text)} ({kind})"),
        )
    )
    around = _around(finding, result)
    if around:
        yield Code(around)
    yield Fold("evidence, range, how to measure", (Lines(tuple(Line(line, Tone.QUIET) for line in details(finding))),))


def _around(finding: Finding, result: Result) -> str:
    """The lines of the file that it is about."""
    lines = lines_of(result.project.texts.get(finding.place.file, ""))
    at = finding.place.line
    if not 0 < at <= len(lines):
        return ""
    first, last = max(1, at - AROUND), min(len(lines), at + AROUND)
    secrets = Secrets(result.project.texts)
    lines[first - 1 : last] = [secrets.hide_source(line) for line in lines[first - 1 : last]]
    return "\n".join(
        f"{'>' if number == at else ' '} {number:>5}  {printable(lines[number - 1].expandtabs(4), LONGEST)}"
        for number in range(first, last + 1)
    )


def _plan(result: Result) -> Iterator[Part]:
    plan = phases(result.findings, result.cost, result.refused)
    if not plan:
        return
    yield Heading("In which order")
    number = 0
    for phase in plan:
        lines = [Line(str(phase.when), Tone.QUIET)]
        for step in phase.steps:
            number += 1
            at = ", ".join(dict.fromkeys(words.where(one) for one in step.findings))
            by = " (--fix does it)" if step.by_fix else ""
            lines.append(Line(f"{number}. {step.code} at {at}: {words.text(step.text)}{by}"))
            if step.measures:
                lines.append(Line(f"measure: {words.text(step.measures)}", Tone.QUIET))
        yield Lines(tuple(lines))
