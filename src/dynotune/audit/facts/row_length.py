"""Tokens of a row where no setting of a trainer cuts it: by what the rows on disk are called or said to be, or by a number
of the program that is called a length."""

import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import reached

_LENGTH = re.compile(
    r"(?:^|[._])(?:max_?len(?:gth)?|max_?tokens|max_seq_?len(?:gth)?|block(?:_?size)?|seq_?len(?:gth)?|sequence_?len(?:gth)?"
    r"|ctx(?:_?len)?|context(?:_?len(?:gth)?)?)$",
    re.IGNORECASE,
)
_IN_A_NAME = re.compile(r"[a-z][_-](\d{3,5})/?$", re.IGNORECASE)
"""`blocks_2048`."""

_SAID = re.compile(
    r"\b(?:rows|blocks|sequences|chunks|windows) of (\d{2,5}|\d{1,2},\d{3}) tokens\b"
    r"|\b(?:input_ids|labels|ids)\b[^\n\d]{0,30}\b(\d{2,5}) (?:each|(?:tokens )?(?:per|a) row)\b",
    re.IGNORECASE,
)


def row_length(job: Job, project: Project) -> int | None:
    """None: nothing tells it, or two things do."""
    scripts = {one.file: one for first in project.scripts if first.file in job.files for one in reached(first, project)}
    for found in (_of_the_rows(list(scripts.values())), _of_a_number(job, scripts, project)):
        lengths = set(found)
        if lengths:
            return lengths.pop() if len(lengths) == 1 else None
    return None


def _of_the_rows(scripts: list[Script]) -> Iterator[int]:
    for script in scripts:
        for call in script.calls_of("load_from_disk"):
            named = next((call.arguments[one].value for one in ("0", "dataset_path") if one in call.arguments), None)
            found = _IN_A_NAME.search(named) if isinstance(named, str) else None
            if found is not None and 128 <= int(found[1]) <= 32_768 and int(found[1]) % 64 == 0:
                yield int(found[1])
            said = _SAID.search(script.comments.get(call.place.line, ""))
            if said is not None:
                yield int((said[1] or said[2]).replace(",", ""))


def _of_a_number(job: Job, scripts: Mapping[str, Script], project: Project) -> Iterator[int]:
    """Of the configurations that the job reads, and of constants and options of its program."""
    for config in project.configs:
        if config.file in job.files:
            yield from (
                _plain(config.at(path)) for path in config.places if _LENGTH.search(path) and _plain(config.at(path))
            )
    for script in scripts.values():
        for name, held in script.constants.items():
            value = _plain(held.value)
            if value and _LENGTH.search(name.lstrip("-")) and not held.others:
                yield value


def _plain(value: object) -> int:
    return value if type(value) is int and 16 <= value <= 131_072 else 0
