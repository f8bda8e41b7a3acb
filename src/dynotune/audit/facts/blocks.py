"""Where a job's own code cuts its text into blocks of one length, and keeps no shorter one."""

import ast
import re

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.prepared import writers_of
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected
from dynotune.audit.place import Place

_CUT = re.compile(r"\[(\w+):\1 \+ (?P<width>[\w.]+)\] for \1 in range\(0, (?P<end>[^\n]{1,80}?), (?P=width)\)")
_OF_A_BUFFER = re.compile(
    r"while len\((?P<buffer>[\w.]+)\) >=? (?P<width>[\w.]+)[^\n]*:"
    r"(?s:.{0,300}?)(?P=buffer)\[:(?P=width)\](?s:.{0,300}?)(?P=buffer)(?: = (?P=buffer))?\[(?:(?P=width):|:(?P=width))\]"
)
_NOT_TRAINING = re.compile(r"eval|valid|test|infer|perplexity|chunk_document", re.IGNORECASE)
_PACKED = re.compile(r"position_ids|cu_seqlens|\bpad\w*\b")
"""Rows that are filled up or told apart, which may be of several lengths before."""


def cut_into_blocks(job: Job, project: Project) -> tuple[str, Place] | None:
    """The function that does it, and where; None: none is part of the job, or of what writes the rows that it loads."""
    start = next((one for one in project.scripts if one.file in job.files), None)
    program = connected(start, project) if start is not None else ()
    for script in (*program, *writers_of(program, project)):
        for function in ast.walk(script.tree):
            if not isinstance(function, ast.FunctionDef) or _NOT_TRAINING.search(function.name):
                continue
            text = _own(function)
            if len(text) < 5_000 and not _PACKED.search(text) and _only_whole_ones(text):
                return function.name, place_of(script, function)
    return None


def _own(function: ast.FunctionDef) -> str:
    """The source of its own statements: functions in it have a turn of their own, under their own names."""
    return "\n".join(ast.unparse(one) for one in function.body if not isinstance(one, ast.FunctionDef))


def _only_whole_ones(text: str) -> bool:
    """Each block has the whole width: the end is a multiple of it, or a buffer is cut while it has enough."""
    cut = _CUT.search(text)
    if cut is not None:
        width, end = re.escape(cut["width"]), re.escape(cut["end"])
        whole = rf"// {width}\)? \* {width}|{width} \* \([^\n]*// {width}|- [^\n]* % {width}"
        return bool(re.search(whole, cut["end"]) or re.search(rf"\b{end} = [^\n]*(?:{whole})", text))
    return _OF_A_BUFFER.search(text) is not None
