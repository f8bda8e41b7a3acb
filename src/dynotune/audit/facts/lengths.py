"""How long rows are, by what a project's documents say of them."""

import itertools
import re
from collections.abc import Iterator

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


_MOST_BELOW = re.compile(
    r"\b9\d ?%(?: of (?:the |all )?[a-z]+)? (?:have|has|are|stay|fit)[^.\n\d]{0,20}(?:fewer|less|under|below|shorter)"
    r"(?: than)? (\d{2,4}|\d,\d{3}) tokens",
    re.IGNORECASE,
)
"""`95 % of the mails have fewer than 400 tokens`: in the mean they have about half of that, as lengths of texts are."""


def usual_row(project: Project) -> int | None:
    """Tokens of a row in the mean, as documents tell; None: none does, or two say different things."""
    found = {
        int(re.sub(r"\D", "", one[1] or one[2]))
        for text in project.documents.values()
        for line in text.split("\n")
        for one in _USUAL.finditer(line)
        if not _OF_OTHERS.search(line[: one.start()][-60:])
    }
    found = found or {
        int(re.sub(r"\D", "", one[1])) // 2 for text in project.documents.values() for one in _MOST_BELOW.finditer(text)
    }
    found = found or {length for text in project.documents.values() for length in _in_tables(text)}
    return found.pop() if len(found) == 1 else None


_MEAN = re.compile(r"\b(?:mean|average|avg)\b", re.IGNORECASE)
_OF_LENGTHS = re.compile(r"\btoken(?:s|is\w*)?\b|\blengths?\b", re.IGNORECASE)
_TRAINED = re.compile(r"\btrain(?:ing)?\b", re.IGNORECASE)


def _in_tables(text: str) -> Iterator[int]:
    """The mean of the training rows in a table of lengths, or of its only row:
    `| split | rows | mean | p99 |`, `| train | 41,812 | 231 | 655 |`."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        head = cells(line)
        column = next((at for at, cell in enumerate(head) if _MEAN.search(cell)), None)
        about = " ".join((*lines[max(0, number - 3) : number], line))
        if column is None or not _OF_LENGTHS.search(about) or re.search(r"\bchar|\bword", about, re.IGNORECASE):
            continue
        table = itertools.takewhile(lambda row: row.lstrip().startswith("|"), lines[number + 1 : number + 12])
        rows = [row for row in map(cells, table) if len(row) == len(head) and not set("".join(row)) <= set("-: ")]
        trained = [row for row in rows if _TRAINED.search(row[0])] or (rows if len(rows) == 1 else [])
        for row in trained[:1]:
            if (length := re.fullmatch(r"~?(\d{2,4}|\d{1,3},\d{3})(?:\.\d+)?", row[column])) is not None:
                yield int(length[1].replace(",", ""))


def cells(line: str) -> list[str]:
    """Of a line of a table; none of another line."""
    return [cell.strip(" *`") for cell in line.strip().strip("|").split("|")] if line.lstrip().startswith("|") else []
