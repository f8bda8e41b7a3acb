"""A comment names ZeRO's stage, or offloading, and DeepSpeed's file has another, or none."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place
from dynotune.audit.shapes.claims_of_comments import NOT_SO, comments_of

_ZERO = re.compile(r"\bzero[\s_-]*(?:stage[\s_-]*)?([0-3])\b|\bstage[\s_-]*([0-3])\b", re.IGNORECASE)
_OFFLOAD = re.compile(r"\boff-?load", re.IGNORECASE)


def claims_of_sharding(project: Project) -> Iterator[Said]:
    for job in project.jobs:
        for file, line, text in comments_of(job, project):
            yield from _of_zero(job, project, text, Place(file, line))
    yield from _of_named_files(project)


def _of_zero(job: Job, project: Project, text: str, place: Place) -> Iterator[Said]:
    """The comment names ZeRO's stage, or offloading, and DeepSpeed's configuration has another, or none."""
    stage = job.setting("zero_stage")
    if stage is None or not isinstance(stage.value, int) or not re.search(r"zero|deepspeed", text, re.IGNORECASE):
        return
    config = next((one for one in project.configs if one.file == stage.place.file), None)
    yield from _of_stage(config, stage.value, stage.place, text, place)


def _of_named_files(project: Project) -> Iterator[Said]:
    """A comment of a launcher or a script that names a DeepSpeed file says another stage, or offloading, than it has."""
    for config in project.configs:
        zero = config.values.get("zero_optimization") if config.kind == "deepspeed" else None
        stage = zero.get("stage", 0) if isinstance(zero, Mapping) else None
        if type(stage) is not int:
            continue
        there = config.places.get("zero_optimization.stage", Place(config.file))
        name = re.compile(rf"(?<![\w-]){re.escape(PurePosixPath(config.file).name)}\b")
        for place, line in _comment_lines(project):
            if name.search(line) and _ZERO.search(name.sub("", line)):
                yield from _of_stage(config, stage, there, name.sub("", line), place)


def _comment_lines(project: Project) -> Iterator[tuple[Place, str]]:
    """Lines of launchers and configurations that are comments."""
    for file, text in project.texts.items():
        if not file.endswith((".json", ".py", ".ipynb")) and "#" in text:
            lines = enumerate(lines_of(text), 1)
            yield from ((Place(file, number), line) for number, line in lines if line.lstrip().startswith("#"))


def _of_stage(config: ConfigFile | None, stage: int, there: Place, text: str, place: Place) -> Iterator[Said]:
    found = _ZERO.search(text)
    claimed = int(found[1] or found[2]) if found is not None else None
    zero = config.values.get("zero_optimization") if config is not None else None
    kept = not isinstance(zero, Mapping) or any(str(key).startswith("offload") for key in zero)
    wrong = []
    if claimed is not None and claimed != stage:
        wrong.append(f"stage {claimed}, and the configuration's is {stage}")
    if _OFFLOAD.search(text) and not kept:
        wrong.append("offloading, and the configuration has none")
    if wrong and not NOT_SO.search(text):
        yield Finding(
            f"The comment speaks of {'; and of '.join(wrong)}.",
            place=place,
            evidence=Evidence(Level.RESOLVED, {"comment": text.strip(), "zero_stage": stage}),
            stake=Stake(AtStake.CLARITY),
            remedy=Remedy(Risk.BEHAVIOURAL, "Make the comment and the configuration agree."),
            also=(there,),
        )
