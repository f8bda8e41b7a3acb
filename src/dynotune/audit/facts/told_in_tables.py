"""How much data a project trains on, by a table or a list of its documents with rows and their length in two lines."""

import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place

_LINE = re.compile(
    r"\s*(?:\||[-*+]\s)\s*(?P<key>[^|:=\n]{2,40}?)\s*(?:\||:|=)\s*(?P<value>[^|\n]{1,120}?)\s*(?:\|[^\n]{0,120})?$"
)
"""`| rows | 4 200 pairs |`, `- tokens per row: 165 on average`."""

_ROWS = re.compile(
    r"\b(?:rows|pairs|examples|samples|conversations|dialog(?:ue)?s|chats|documents|questions|instructions|records|tickets"
    r"|train(?:ing)?(?: (?:set|data|split|rows|examples))?|data(?:set)?(?: size)?)$",
    re.IGNORECASE,
)
_COUNT = re.compile(
    r"[~\u2248]?\s?(\d{1,3}(?:[ ,\u202f]\d{3})+|\d{2,7}|\d{1,3}(?:\.\d{1,2})?\s?[kK])"
    r"(?![\d.,]|\s*(?:tokens|tok\b|[MGT]i?B\b|%))"
)
_LENGTH = re.compile(
    r"\btokens?\b[^|]*\b(?:per|an?|each|/)\s*(?:row|example|pair|sample|conversation|dialog(?:ue)?|chat|document|record)\b"
    r"|\b(?:mean|average|avg\.?)\b[^|]*\b(?:length|tokens)\b|\b(?:length|tokens)\b[^|]*\b(?:mean|average|avg)\b",
    re.IGNORECASE,
)
_USUAL = re.compile(r"[~\u2248]?\s?(\d{2,5}|\d{1,2}[ ,]\d{3})(?![\d.]|\s*(?:to|-|\u2013)\s*\d)")
_NOT_THESE = re.compile(
    r"\b(?:eval\w*|test\w*|valid\w*|dev|held|max\w*|longest|limit|p\d\d|percentile|context|vocab\w*|batch|speed|packed|steps?"
    r"|chars|characters|words|generat\w*)\b",
    re.IGNORECASE,
)


def tokens_in_tables(project: Project) -> Iterator[tuple[float, Place]]:
    """Rows times their usual length, of each document that has one number of both."""
    for file, text in project.documents.items():
        if "token" not in text.lower():
            continue
        rows, lengths = list(_told(text, _ROWS, _COUNT)), list(_told(text, _LENGTH, _USUAL))
        if len(rows) == len(lengths) == 1:
            yield rows[0][0] * lengths[0][0], Place(file, rows[0][1])


def _told(text: str, key: re.Pattern[str], value: re.Pattern[str]) -> Sequence[tuple[float, int]]:
    found = []
    for number, line in enumerate(lines_of(text), 1):
        entry = _LINE.match(line) if len(line) < 300 else None
        if entry is None:
            continue
        name = entry["key"].strip("*` ")
        held = value.match(entry["value"].strip("*` "))
        if held is not None and key.search(name) and not _NOT_THESE.search(name):
            figure = held[1].lower().replace(" ", "").replace(",", "").replace("\u202f", "")
            found.append((float(figure.rstrip("k")) * (1e3 if figure.endswith("k") else 1), number))
    return found
