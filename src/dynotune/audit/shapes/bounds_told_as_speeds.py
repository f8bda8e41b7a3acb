"""Figures of documents, and counts of a trainer, that are called tokens a second and are more than the real ones: rows times
the length at which they are cut, what a data sheet calls a card's peak, and input tokens with their padding."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import reached
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place

_NUMBER = re.compile(r"(?<![\w.,$])(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)\s?(k\b)?", re.IGNORECASE)
_TOKENS = re.compile(r"\btok(?:en)?s?\s?(?:/|per|a)\s?s|tokens a second|\btok/s\b", re.IGNORECASE)
_ROWS = re.compile(
    r"\b(?:rows|samples|examples|sequences|seqs|it|steps?)\s?(?:/|per)\s?s(?:ec(?:ond)?)?\b", re.IGNORECASE
)
_BOUND = re.compile(
    r"\bat (?:most|best)\b|upper bound|\bbound\b|\bif every\b|\bup to\b|theoretical|real tokens", re.IGNORECASE
)
_FORMULA = re.compile(
    r"(?:rows|samples|examples|sequences)\s?(?:/|per)\s?s(?:ec(?:ond)?)?`?\s{0,2}[x*\u00d7]\s{0,2}`?"
    r"(?:sequence_len|max_(?:seq_)?length|cutoff_len|max_seq_len|model_max_length)\b",
    re.IGNORECASE,
)


def rows_times_the_limit(limit: int, project: Project) -> Iterator[tuple[str, Place]]:
    """A document whose tokens a second are its rows a second times the limit, by a formula or by the figures of a table."""
    for file, text in project.documents.items():
        if not _TOKENS.search(text) or _BOUND.search(text):
            continue
        lines = list(lines_of(text))
        for number, line in enumerate(lines, 1):
            if (found := _FORMULA.search(line)) is not None:
                yield found[0].replace("`", ""), Place(file, number, 1, number, len(line) + 1)
                return
            head = _head(lines, number - 1)
            if not _TOKENS.search(f"{head} {line}") or not _ROWS.search(f"{head} {line}"):
                continue
            figures = [_figure(one) for one in _NUMBER.finditer(line)][:20]
            for rate in figures:
                if any(abs(other - rate * limit) <= 0.004 * other for other in figures if other > 1_000 and rate > 0.1):
                    yield f"{rate:g} x {limit}", Place(file, number, 1, number, len(line) + 1)
                    return


def _head(lines: list[str], at: int) -> str:
    """Of the table that a line stands in."""
    if not lines[at].lstrip().startswith("|"):
        return ""
    while at > 0 and lines[at - 1].lstrip().startswith("|"):
        at -= 1
    return lines[at]


def _figure(found: re.Match[str]) -> float:
    return float(found[1].replace(",", "")) * (1_000 if found[2] else 1)


PEAKS = {
    "H100": 989.0,
    "H200": 989.0,
    "A100": 312.0,
    "L40S": 362.0,
    "A10G": 70.0,
    "L4": 121.0,
    "B200": 2_250.0,
    "V100": 125.0,
}
"""Teraflops of dense 16-bit products, by data sheets."""

_REACHED = re.compile(
    r"\b(?:reach\w*|achiev\w*|sustain\w*|deliver\w*|hits?|gets?|runs? at|trains? at|measured?)\b[^.\n]{0,40}?"
    r"(?<![\d.])(\d{1,5}(?:[.,]\d{1,3})?)\s?(TFLOP|PFLOP|teraflop|petaflop)",
    re.IGNORECASE,
)
_OF_A_SHEET = re.compile(
    r"\bpeak\b|theor|data ?sheet|could|at best|at most|up to|\bbound\b|\b(?:can|never|not|of)\s*$", re.IGNORECASE
)


def peak_told_as_reached(project: Project) -> Iterator[tuple[str, str, Place]]:
    """`we reach 7.9 PFLOPS` of eight cards whose data sheet has that: no training does."""
    for file, text in project.documents.items():
        if not re.search(r"flop", text, re.IGNORECASE):
            continue
        cards = {name for name in PEAKS if re.search(rf"\b{name}s?\b", text)}
        if len(cards) != 1:
            continue
        card = cards.pop()
        counts = {int(one) for one in re.findall(rf"(?<![\d.])(\d{{1,4}})\s?[x\u00d7]?\s?(?:NVIDIA )?{card}", text)} | {
            1
        }
        for number, line in enumerate(lines_of(text), 1):
            found = _REACHED.search(line)
            if found is None or _OF_A_SHEET.search(line[max(0, found.start() - 20) : found.end()]) or len(line) > 600:
                continue
            claimed = float(found[1].replace(",", "")) * (1_000 if found[2][0].lower() == "p" else 1)
            if any(0.97 <= claimed / (PEAKS[card] * one) <= 1.05 for one in counts):
                yield f"{found[1]} {found[2]}S", card, Place(file, number, 1, number, len(line) + 1)
                return


_SEEN = re.compile(r"num_input_tokens_seen")
_SPEED = re.compile(r"tok\w*\s?(?:/|per|_per_)\s?s|tps\b|throughput", re.IGNORECASE)


def padding_that_was_seen(job: Job, project: Project) -> tuple[Place, Place] | None:
    """`include_tokens_per_second` makes a speed of all input tokens of the loader, padding too;
    `include_num_input_tokens_seen: all` counts padding, and something divides what it counted by a
    time."""
    own = next((one for one in reversed(job.given) if one.name == "include_tokens_per_second"), None)
    setting = job.setting("include_num_input_tokens_seen")
    given = next((one for one in reversed(job.given) if one.name == "include_num_input_tokens_seen"), None)
    value = setting.value if setting is not None and job.is_given("include_num_input_tokens_seen") else None
    value, place = (given.value, given.place) if given is not None else (value, setting.place if setting else None)
    counts = (own is not None and own.value is True) or value in (True, "all")
    if not counts or job.get("packing") is True:
        return None
    first = [one for one in project.scripts if one.file in job.files]
    near: dict[str, Script] = {one.file: one for script in first for one in reached(script, project)}
    if not any(_PADS.search(one.source) for one in near.values()):
        return None
    if own is not None and own.value is True:
        return own.place, own.place
    for script in near.values() if place is not None else ():
        if place is not None and _SEEN.search(script.source) and _SPEED.search(script.source):
            for call in script.calls:
                if _SPEED.search(script.source.split("\n")[call.place.line - 1]):
                    return place, call.place
    return None


_PADS = re.compile(
    r"DataCollatorWithPadding|DataCollatorForSeq2Seq|DataCollatorForLanguageModeling|pad_sequence|SFTTrainer\("
)
