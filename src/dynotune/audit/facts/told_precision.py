"""Where a project's own words say that a run computes in 16 bits."""

import re
from collections.abc import Iterable

from dynotune.audit.facts.project import Project
from dynotune.audit.place import Place

_SAID = re.compile(r"\b(?:bf16|bfloat16|fp16 mixed|mixed[ -]precision|half[ -]precision|AMP)\b", re.IGNORECASE)
_BUT = re.compile(
    r"\b(?:no|not|without|instead|than|unlike|fp32|float32|full precision|todo|later|would|try|should|could|only|never)\b"
    r"|\b(?:infer|serv|eval|export|merg|convert|publish|upload)\w*|\breleased?\b|n't\b|\[ \]",
    re.IGNORECASE,
)

_IS_CODE = re.compile(r"\s*[\w.]+\s*=\s*\S+,?$")
"""An argument that a document shows."""


def told_precision(project: Project, files: Iterable[str]) -> Place | None:
    """In a document, or in a comment of a launcher that starts one of these files."""
    starts = {one.file for one in project.launches if {one.file, one.script} & set(files)} - set(project.documents)
    comments = {file: re.sub(r"(?m)^(?!\s*#).*$", "", project.texts.get(file, "")) for file in starts}
    for file, text in (*project.documents.items(), *comments.items()):
        fenced = False
        for number, line in enumerate(text.split("\n"), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            if not fenced and not _IS_CODE.match(line) and _SAID.search(line) and not _BUT.search(line):
                return Place(file, number, 1, number, len(line) + 1)
    return None
