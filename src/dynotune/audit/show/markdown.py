"""An audit as Markdown, for a pull request or a note."""

import re
from collections.abc import Iterator

from dynotune.audit.finding import Finding, Risk
from dynotune.audit.plan.phases import phases
from dynotune.audit.run import Result
from dynotune.audit.show import words
from dynotune.audit.show.terminal import details

_SPECIAL = re.compile(r"([\\*_\[\]<>|#~$&])")
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def markdown(result: Result) -> str:
    """The whole text. What stands in audited files is escaped: it makes no links, no HTML and no mentions."""
    lines = ["## dynotune audit", "", f"**{prose(words.headline(result))}**", ""]
    if result.findings:
        lines += ["| | code | where | finding | at stake | evidence |", "| --- | --- | --- | --- | --- | --- |"]
        lines += [_row(finding, result) for finding in result.findings]
        lines += [""]
    for finding in result.findings:
        lines += list(_folded(finding))
    plan = list(_plan(result))
    if plan:
        lines += ["### In which order", "", *plan, ""]
    lines += ["### Checked", "", f"- {prose(words.keep(result))}{_passed(result)}", f"- {prose(words.checked(result))}"]
    said = [
        *words.holes(result),
        *words.data(result),
        *words.not_read(result),
        *words.remarks(result),
        words.answered(result),
        words.ceiling(result),
    ]
    lines += [f"- {prose(line)}" for line in said if line]
    lines += [f"- suppressed: {one.finding.code} at {prose(words.where(one.finding))}: {prose(words.text(one.by.reason))}"
              for one in result.suppressed]  # fmt: skip
    lines += ["", prose(words.bottleneck(result)), "", prose(words.next_action(result))]
    return "\n".join(lines) + "\n"


def prose(text: str) -> str:
    """Text with its code spans, and nothing else, as Markdown. A mention (`@name`) would call people."""
    parts: list[str] = []
    last = 0
    for found in _CODE.finditer(text):
        parts += [_escaped(text[last : found.start()]), _code(found[1])]
        last = found.end()
    return "".join([*parts, _escaped(text[last:])])


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text).replace("`", "\\`").replace("@", "@\u200b").replace("://", ":\u200b//")


def _code(text: str) -> str:
    """A code span, also within a table."""
    return f"`{text.replace('|', chr(92) + '|')}`" if text.strip() else _escaped(text)


def _row(finding: Finding, result: Result) -> str:
    cells = (
        words.word(finding),
        finding.code,
        prose(words.where(finding)),
        prose(words.text(finding.message)),
        words.effect(finding, result) or str(finding.stake.what),
        words.level(finding),
    )
    return f"| {' | '.join(cells)} |"


def _folded(finding: Finding) -> Iterator[str]:
    kind = "for you to decide" if finding.remedy.risk is Risk.BEHAVIOURAL else str(finding.remedy.risk)
    head = f"{finding.code} {words.name(finding.code)}: {_html(words.where(finding))}"
    yield from (f"<details><summary>{head}</summary>", "")
    yield from (f"{prose(words.text(finding.remedy.text))} ({kind})", "")
    yield from (f"- {prose(line)}" for line in details(finding))
    yield from ("", "</details>", "")


def _html(text: str) -> str:
    """In a line of HTML, where Markdown is not read."""
    for mark in "&<>[]*_":
        text = text.replace(mark, f"&#{ord(mark)};") if mark != "&" else text.replace("&", "&amp;")
    return text.replace("@", "@\u200b").replace("://", ":\u200b//").replace("`", "")


def _plan(result: Result) -> Iterator[str]:
    number = 0
    for phase in phases(result.findings, result.cost, result.refused):
        yield from (f"**{phase.when}**", "")
        for step in phase.steps:
            number += 1
            places = ", ".join(dict.fromkeys(prose(words.where(one)) for one in step.findings))
            by = " (`--fix` does it)" if step.by_fix else ""
            yield f"{number}. {step.code} at {places}: {prose(words.text(step.text))}{by}"
            if step.measures:
                yield f"   Measure: {_code(words.text(step.measures))}"
        yield ""


def _passed(result: Result) -> str:
    return f" ({', '.join(result.passed)})" if result.passed else ""
