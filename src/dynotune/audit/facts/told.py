"""How much data a project's documents say that it trains on."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dynotune.audit.facts.project import Project
from dynotune.audit.place import Place

_NO_RATE = r"\b(?!\s?(?:/|per|an?\b|each))"
_TOKENS = re.compile(
    rf"(?<![\w.,/])~?(\d{{1,3}}(?:[.,]\d{{1,3}})?)\s?(k|thousand|M|million|B|billion)\s(?:tokens|tok){_NO_RATE}"
)
_WHOLE = re.compile(rf"(?<![\w.,/])~?(\d{{1,3}}(?:[, ]\d{{3}})+)\stokens{_NO_RATE}")
_OF_DATA = re.compile(
    r"\b(?:rows|pairs|examples|conversations|dialog(?:ue)?s|chats|documents?|tickets|records|questions|samples|data(?:set)?|corpus"
    r"|jsonl|instructions?|texts?)\b",
    re.IGNORECASE,
)
_OF_SOMETHING_ELSE = re.compile(
    r"\b(?:context|window|rows? of|sequence|length|limit|up to|at most|max\w*|speed|through\w*|per second|budget"
    r"|pre-?train\w*|test|eval\w*|valid\w*|longest|batch|update|step|model|vocab\w*|was|had|old|planned|todo|generat\w*)\b|/s\b",
    re.IGNORECASE,
)
_ROWS_OF = re.compile(r"\brows of (\d[\d,]{2,6}) tokens\b", re.IGNORECASE)
_TIMES = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "b": 1e9, "billion": 1e9}


@dataclass(frozen=True, slots=True)
class Told:
    tokens: float
    place: Place


def tokens_told(project: Project) -> Told | None:
    """Of all training data together, where the documents have one such figure; None: none, or several."""
    found = list(_figures(project))
    return found[0] if len({one.tokens for one in found}) == 1 else None


def _figures(project: Project) -> Iterator[Told]:
    for file, text in project.documents.items():
        for number, line in enumerate(text.split("\n"), 1):
            for part in re.split(r"(?<=[a-z)])[.;] ", line):
                if not _OF_DATA.search(part):
                    continue
                for found in (*_TOKENS.finditer(part), *_WHOLE.finditer(part)):
                    if _OF_SOMETHING_ELSE.search(part[: found.start()]):
                        continue
                    unit = _TIMES[found[2].lower()] if found.re is _TOKENS else 1
                    figure = found[1].replace(" ", "")
                    figure = figure.replace(",", "." if unit > 1 else "")
                    yield Told(float(figure) * unit, Place(file, number))


def row_told(project: Project) -> int | None:
    """Tokens of a packed row, by documents that speak of packing (`With packing into rows of 4096 tokens`)."""
    found = {
        int(one[1].replace(",", ""))
        for text in project.documents.values()
        for line in text.split("\n")
        if re.search(r"\bpack", line, re.IGNORECASE)
        for one in _ROWS_OF.finditer(line)
    }
    return found.pop() if len(found) == 1 else None
