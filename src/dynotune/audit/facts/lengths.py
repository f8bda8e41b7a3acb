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
