"""A comment or a document says that each GPU holds a copy of the model, and one process spreads the layers over them."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.spread_beside import SPREAD

_COPIES = re.compile(
    r"\bdata[- ]?parallel|\bDDP\b|\bDistributedDataParallel\b"
    r"|\b(?:each|every) (?:gpu|card|device)\b[^.;]{0,30}\b(?:holds?|has|gets|keeps)"
    r" (?:a|its own|the whole|one) (?:copy|replica|model)"
    r"|\bone (?:copy|replica) (?:per|on each|on every) (?:gpu|card|device)",
    re.IGNORECASE,
)
_OTHERWISE = re.compile(
    r"\b(?:not?|never|without|instead|cannot|can't|if|later|todo|planned|could|rather than|model[- ]parallel"
    r"|pipeline|layers)\b|n't",
    re.IGNORECASE,
)


def copies_claimed(job: Job, project: Project) -> Iterator[Said]:
    """`device_map="auto"` in a script that `python train.py` starts, under "trains on four GPUs, data parallel"."""
    if job.get("device_map") not in SPREAD or not job.is_given("device_map") or (number(job, "num_processes") or 1) > 1:
        return
    starts = [one for one in project.launches if one.script and one.script in job.files]
    if not starts or any(one.launcher for one in starts) or job.setting("device_map") is None:
        return
    setting = job.setting("device_map")
    if setting is None or setting.others:
        return
    said = next(_claims(job, project), None)
    if said is None:
        return
    yield Finding(
        f"`{said.file}` speaks of a copy of the model on each GPU (line {said.line}), and `{job.called('device_map')}:"
        f" {job.get('device_map')}` in one process cuts the model into layers: one GPU works at a time, and a step"
        f" holds one"
        " micro-batch, not one for each GPU.",
        place=job.place("device_map"),
        evidence=Evidence(Level.RESOLVED, {"device_map": job.get("device_map"), "processes": 1}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Take `{job.called('device_map')}` out and start one process for each GPU (`torchrun --nproc_per_node`"
            " or `accelerate launch --num_processes`).",
            accuracy="Steps hold the rows that the text names.",
            measure="nvidia-smi, while it runs: all GPUs work at once.",
        ),
        also=(said, starts[0].place),
    )


def _claims(job: Job, project: Project) -> Iterator[Place]:
    own = {*job.files, *(one.file for one in project.launches if one.script in job.files)}
    texts = {**project.documents, **{file: _comments(project.texts.get(file, "")) for file in sorted(own)}}
    for file, text in texts.items():
        for number_of_line, line in enumerate(text.split("\n"), 1):
            found = _COPIES.search(line)
            if found is not None and not _OTHERWISE.search(_sentence(text, number_of_line)):
                yield Place(file, number_of_line)


def _comments(text: str) -> str:
    """Each line from its mark on."""
    return "\n".join(line.partition("#")[2] for line in text.split("\n"))


def _sentence(text: str, number_of_line: int) -> str:
    """The line with those beside it that are of its paragraph."""
    lines = text.split("\n")
    near = lines[max(0, number_of_line - 2) : number_of_line + 1]
    return " ".join(near)
