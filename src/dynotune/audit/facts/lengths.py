"""How long rows are, by what a project's documents say of them."""

import re

from dynotune.audit.facts.project import Project

_RANGE = re.compile(
    r"\b(?:rows?|chats?|examples?|conversations?|documents?|samples?|tickets?|texts?|sequences?|records?)\b[^.\n|]{0,40}?"
    r"(\d[\d ,]{0,8})\s*(?:to|and|-|\u2013)\s*(\d[\d ,]{0,8}\d)\s+tokens",
    re.IGNORECASE,
)
"""`2.1M rows of 150 to 512 tokens`."""


def longest_row(project: Project) -> int | None:
    """Tokens of the longest row that documents tell; None: none does, or two say different things."""
    found = {
        int(re.sub(r"\D", "", one[2]))
        for text in project.documents.values()
        for one in _RANGE.finditer(text)
        if int(re.sub(r"\D", "", one[1]) or 0) < int(re.sub(r"\D", "", one[2]))
    }
    return found.pop() if len(found) == 1 else None


_USUAL = re.compile(
    r"(?<![\w.,/-])~?(\d{2,4}|\d,\d{3})\stokens(?:,? long)?,?\s(?:each|apiece|on average|in the mean"
    r"|(?:per|an?)\s(?:row|example|pair|chat|dialog|sample|record|conversation|answer)\b)"
    r"|\b(?:average|mean|avg\.?|median|averag(?:es|ing))\s(?:(?:length|row|size|is|are|of|about|around|roughly)\s){0,3}"
    r"~?(\d{2,4}|\d,\d{3})\stokens\b",
    re.IGNORECASE,
)
"""`140 tokens on average`."""

_OF_OTHERS = re.compile(
    r"\b(?:eval\w*|test|valid\w*|pack\w*|generat\w*|was|were|up to|at most|max\w*|window)\b", re.IGNORECASE
)


def usual_row(project: Project) -> int | None:
    """Tokens of a row in the mean, as documents tell; None: none does, or two say different things."""
    found = {
        int(re.sub(r"\D", "", one[1] or one[2]))
        for text in project.documents.values()
        for line in text.split("\n")
        for one in _USUAL.finditer(line)
        if not _OF_OTHERS.search(line[: one.start()][-60:])
    }
    return found.pop() if len(found) == 1 else None
