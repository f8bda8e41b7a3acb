"""How much data a project's documents say that it trains on."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.told_in_tables import tokens_in_tables
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
_NOUN = (
    r"(?:rows|pairs|examples|conversations|dialog(?:ue)?s|chats|documents|tickets|records|questions|samples|instructions|texts"
    r"|prompts|answers|messages|stories|recipes|tweets|reviews|summaries|snippets|tasks|functions|items|lines|transcripts|e?mails"
    r"|notes|articles|commands|utterances|sentences|captions|queries|jokes|entries|turns|haikus?|posts|comments|contracts|letters|reports|abstracts|paragraphs|poems|cases|problems|complaints|faqs)"
)
_COUNT = re.compile(
    r"(?<![\w.,/\u00d7])~?(\d{1,3}(?:[ ,]\d{3})+|\d{2,7}|\d{1,3}(?:\.\d)?k)\s(?!tokens)"
    rf"(?:[a-z][\w-]*[ ,/]+){{0,3}}?{_NOUN}\b",
    re.IGNORECASE,
)
"""`1,200 short dialogs`, `12k question/answer pairs`."""

_NUMBER = r"~?(\d{2,4}|\d,\d{3})\stokens"
_EACH = re.compile(
    rf"(?<![\w.,/-]){_NUMBER}(?:,? long)?,?\s(?:each|apiece|on average|in the mean|(?:per|an?)\s(?:row|example|pair|chat"
    r"|dialog|sample|record|conversation|answer)\b)"
    r"|\b(?:average|mean|avg\.?|averag(?:es|ing))\s(?:(?:length|row|size|is|are|of|about|around|roughly)\s){0,3}"
    rf"{_NUMBER}\b|\btokens,?\s(?:and\s)?(?:mean|average|avg\.?)\s~?(\d{{2,4}}|\d,\d{{3}})\b(?!\s(?:char|word))|{_NOUN}\sof\s(?:about\s|around\s|roughly\s|some\s)?{_NUMBER}\b",
    re.IGNORECASE,
)
"""The usual length of one of them."""

_ROWS_OF = re.compile(r"\brows of (\d[\d,]{2,6}) tokens\b", re.IGNORECASE)
_TIMES = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "b": 1e9, "billion": 1e9}


@dataclass(frozen=True, slots=True)
class Told:
    tokens: float
    place: Place


def tokens_told(project: Project) -> Told | None:
    """Of all training data together, where the documents have one such figure; None: none, or several."""
    found = list(_figures(project)) or list(_products(project))
    found = found or [Told(tokens, place) for tokens, place in tokens_in_tables(project)]
    found = found or list(_by_a_key(project))
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


def _products(project: Project) -> Iterator[Told]:
    """`1,200 short dialogs (150 tokens each on average)`: a number of rows and their usual length in one sentence."""
    for place, line in _lines(project):
        if "token" in line:
            for part in re.split(r"(?<=[a-z)])[.;] ", line):
                for each in _EACH.finditer(part):
                    length = next(group for group in each.groups() if group)
                    counts = [one for one in _COUNT.finditer(part) if one.start() <= each.start()]
                    between = part[counts[-1].end() : each.start()] if counts else ""
                    before = part[: counts[-1].start()][-40:] if counts else ""
                    if not counts or _NOT_TRAINED_ON.search(before) or _AT_MOST.search(between):
                        continue
                    rows = counts[-1][1].lower().replace(" ", "").replace(",", "")
                    many = float(rows.rstrip("k")) * (1e3 if rows.endswith("k") else 1)
                    yield Told(many * float(length.replace(",", "")), place)


_MEAN_KEY = re.compile(
    r"(?:^|\.|_)(?:mean|avg|average)_(?:tokens|len|length|seq_?len)$|(?:^|\.)tokens_per_(?:row|example|sample)$"
)


def _by_a_key(project: Project) -> Iterator[Told]:
    """A configuration has the usual length (`mean_tokens: 45`), and something counts the rows."""
    counted = rows_told(project)
    for config in project.configs if counted is not None else ():
        for key, place in config.places.items():
            held: object = config.values
            for part in key.split("."):
                held = held.get(part) if isinstance(held, Mapping) else None
            if _MEAN_KEY.search(key) and type(held) in (int, float) and counted is not None:
                yield Told(counted[0] * float(str(held)), place)


def rows_told(project: Project) -> tuple[int, Place] | None:
    """How many rows the data has, where all sentences that count some say the same; None: none does, or they differ."""
    found: list[tuple[int, Place]] = []
    for place, line in _lines(project):
        for one in _COUNT.finditer(line) if re.search(r"\d", line) else ():
            before, behind = line[: one.start()][-40:], line[one.end() :][:40]
            if not _NOT_TRAINED_ON.search(before) and not _A_PART.match(behind):
                rows = one[1].lower().replace(" ", "").replace(",", "")
                found.append((int(float(rows.rstrip("k")) * (1e3 if rows.endswith("k") else 1)), place))
    return found[0] if len({rows for rows, _ in found}) == 1 else None


_A_PART = re.compile(
    r"\s*(?:per|an?|each|every|/|for (?:test|eval|valid)\w*|(?:are |is )?(?:held|left|kept|set) )", re.IGNORECASE
)


def _lines(project: Project) -> Iterator[tuple[Place, str]]:
    """Of documents, of notebooks' texts, and comments of scripts and configurations."""
    for file, text in (*project.documents.items(), *project.notes.items()):
        whole = file in project.documents
        yield from ((Place(file, number if whole else 0), line) for number, line in _paragraphs(text))
    for script in project.scripts:
        yield from ((Place(script.file, number), comment) for number, comment in script.comments.items())
        if (said := ast.get_docstring(script.tree)) is not None:
            yield from ((Place(script.file, number), line) for number, line in _paragraphs(said))
    for config in project.configs:
        yield from ((Place(config.file, number), comment) for number, comment in config.comments.items())


_APART = re.compile(r"\s*$|\s*(?:#|[-*+] |\||```|>|\d+\. )")
"""A line that does not go on with what the one before it says; what is indented does, unless a line is empty between."""


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Lines that one sentence may run over, joined, each with the number of the line that first says `token`."""
    held: list[tuple[int, str]] = []
    for number, line in (*enumerate(text.split("\n"), 1), (0, "")):
        if held and _APART.match(line):
            yield next((at for at, one in held if "token" in one), held[0][0]), " ".join(one for _, one in held)
            held = []
        if line.strip():
            held.append((number, line))


_NOT_TRAINED_ON = re.compile(
    r"\b(?:batch\w*|steps?|updates?|test|eval\w*|valid\w*|held|pre-?train\w*|was|had|were|old|planned|todo|generat\w*|every|per"
    r"|limit|cache|up to|at most|max\w*|buffer)\b",
    re.IGNORECASE,
)
_AT_MOST = re.compile(
    r"\b(?:up to|at most|max\w*|longest|window|context|pack\w*|limit\w*|cut|trunc\w*|pad\w*)\b", re.IGNORECASE
)


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
