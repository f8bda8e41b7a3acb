"""How much data a project trains on, by a table or a list of its documents with rows and their length in two lines."""

import itertools
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.lengths import cells
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
        if not lengths:
            yield from ((tokens, Place(file, number)) for tokens, number in _by_columns(text))
        if len(rows) == len(lengths) == 1:
            yield rows[0][0] * lengths[0][0], Place(file, rows[0][1])


_OF_TRAINING = re.compile(r"\btrain(?:ing)?\b", re.IGNORECASE)


def _by_columns(text: str) -> Iterator[tuple[float, int]]:
    """`| split | dialogues | tokens (mean) |` over `| train | 2,400 | 95 |`: of the training rows, or the only ones."""
    lines = list(lines_of(text))
    for number, line in enumerate(lines):
        head = cells(line)
        counts = [at for at, cell in enumerate(head) if at and _ROWS.search(cell) and not _NOT_THESE.search(cell)]
        means = [at for at, cell in enumerate(head) if _LENGTH.search(cell) and not _NOT_THESE.search(cell)]
        if len(counts) != 1 or len(means) != 1:
            continue
        table = itertools.takewhile(lambda row: row.lstrip().startswith("|"), lines[number + 1 : number + 12])
        rows = [(at, row) for at, row in enumerate(map(cells, table), number + 2) if len(row) == len(head)]
        rows = [(at, row) for at, row in rows if not set("".join(row)) <= set("-: ")]
        for at, row in [one for one in rows if _OF_TRAINING.search(one[1][0])] or (rows if len(rows) == 1 else []):
            many, each = _COUNT.fullmatch(row[counts[0]]), _USUAL.fullmatch(row[means[0]])
            if many is not None and each is not None:
                yield _figure(many[1]) * _figure(each[1]), at
                return


def _figure(text: str) -> float:
    figure = text.lower().replace(" ", "").replace(",", "").replace("\u202f", "")
    return float(figure.rstrip("k")) * (1e3 if figure.endswith("k") else 1)


def _told(text: str, key: re.Pattern[str], value: re.Pattern[str]) -> Sequence[tuple[float, int]]:
    found = []
    for number, line in enumerate(lines_of(text), 1):
        entry = _LINE.match(line) if len(line) < 300 else None
        if entry is None:
            continue
        name = entry["key"].strip("*` ")
        held = value.match(entry["value"].strip("*` "))
        if held is not None and key.search(name) and not _NOT_THESE.search(name):
            found.append((_figure(held[1]), number))
    return found
