"""Comments by which somebody answers for a finding: `# dynotune: ignore[OPT001] a reason, until 2027-01-31`.

They stand on the line of the finding or in the comment lines right above it; `ignore-file[...]` stands among the comments
that begin a file, before or behind its docstring, and concerns all of it. The reason is what makes it one: without a
reason, or after its last day, it suppresses nothing, and is itself said. JSON has no comments: there the baseline serves.
"""

import ast
import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynotune.audit.facts.project import Project
from dynotune.audit.finding import Finding
from dynotune.audit.judging.called import meant_by, spelt
from dynotune.audit.judging.comments import comments_of
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place

_MARK = re.compile(r"dynotune:[ \t]*ignore(?P<file>-file)?(?:\[(?P<codes>[^\]]*)\])?(?P<rest>.*)", re.IGNORECASE)
_UNTIL = re.compile(r"(?:^|[\s,;(])until[ \t]+(?P<day>\S+?)[).,;]?[ \t]*$")


@dataclass(frozen=True, slots=True)
class Suppression:
    place: Place
    words: frozenset[str]
    """Codes and families in capitals, names in small letters."""

    reason: str
    until: datetime.date | None = None
    whole_file: bool = False
    lines: tuple[int, int] = (0, 0)
    """First and last line that it concerns, where it is not the whole file."""

    wrong: str = ""
    """Why it suppresses nothing, as the end of a sentence."""

    def covers(self, finding: Finding) -> bool:
        if self.wrong or finding.place.file != self.place.file:
            return False
        if not any(finding.code in meant_by(word) for word in self.words):
            return False
        first, last = finding.place.line, max(finding.place.line, finding.place.end_line)
        # A call may go over many lines; its own comment stands where it begins or ends, not within another argument.
        return self.whole_file or any(self.lines[0] <= line <= self.lines[1] for line in (first, last) if line)


def parse(comment: str, place: Place, today: datetime.date) -> Suppression | None:
    """What a comment (without its mark) means; None for one that is no suppression. Whom it concerns is the caller's."""
    found = _MARK.search(comment)
    if found is None:
        return None
    words = frozenset(spelt(word) for word in re.split(r"[\s,]+", found["codes"] or "") if word)
    rest, until, wrong = found["rest"].strip(" \t:-"), None, ""
    day = _UNTIL.search(rest)
    if day is not None:
        try:
            until = datetime.date.fromisoformat(day["day"])
        except ValueError:
            wrong = f"`{day['day']}` is no day such as 2027-01-31"
        else:
            rest = rest[: day.start()]
    reason = rest.strip(" \t:-,;(")
    if not words:
        wrong = "it names no rule: write `ignore[OPT001]`"
    elif not reason:
        wrong = wrong or "it gives no reason"
    elif until is not None and until < today:
        wrong = f"its last day was {until.isoformat()}"
    return Suppression(place, words, reason, until, bool(found["file"]), wrong=wrong)


def suppressions(project: Project, today: datetime.date) -> Iterator[Suppression]:
    """All of them, in files that have comments."""
    read: dict[str, Mapping[int, str]] = {config.file: config.comments for config in project.configs}
    read |= {script.file: script.comments for script in project.scripts}
    docstrings = {script.file: _docstring_end(script.tree) for script in project.scripts}
    for file, text in project.texts.items():
        if "dynotune:" not in text.lower() or file.endswith(".json"):
            continue
        lines = lines_of(text)
        head = _head(lines, docstrings.get(file, 0))
        yield from _of_file(file, lines, head, read[file] if file in read else comments_of(file, text), today)


def _docstring_end(tree: ast.Module) -> int:
    """Its last line; 0 without one."""
    first = tree.body[0] if tree.body and ast.get_docstring(tree, clean=False) is not None else None
    return (first.end_lineno or 0) if first is not None else 0


def _of_file(
    file: str, lines: list[str], head: int, comments: Mapping[int, str], today: datetime.date
) -> Iterator[Suppression]:
    for number, comment in sorted(comments.items()):
        one = parse(comment, Place(file, number), today)
        if one is None:
            continue
        last, wrong = number, one.wrong
        if number <= len(lines) and lines[number - 1].lstrip().startswith("#"):
            while last < len(lines) and lines[last - 1].lstrip().startswith("#"):
                last += 1
        if one.whole_file and number > head:
            wrong = wrong or "`ignore-file` stands among the comments that begin a file"
        yield Suppression(one.place, one.words, one.reason, one.until, one.whole_file, (number, last), wrong)


def _head(lines: list[str], docstring_end: int) -> int:
    """How many lines of comments, or empty ones, a file begins with, before and behind its docstring."""
    for number, line in enumerate(lines):
        if number >= docstring_end and line.strip() and not line.lstrip().startswith("#"):
            return number
    return len(lines)
