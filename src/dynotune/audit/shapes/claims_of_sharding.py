"""A comment or a document names ZeRO's stage, or offloading, and DeepSpeed's file has another, or none."""

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
    yield from _of_documents(project)


_ALL = re.compile(r"\bzero[\s_-]*(?:stage[\s_-]*)?([0-3])\b", re.IGNORECASE)
_TRAINED = re.compile(
    r"\btrain\w*|\bfine-?tun\w*|\bruns?\b|\bshard\w*|\buse[sd]?\b|\busing\b|\bunder\b|\bwith\b", re.IGNORECASE
)
_OF_OTHERS = re.compile(
    r"\b(?:inference|eval\w*|paper|compared?|than|vs|faster|slower|tried|first|then|later|other|also|option\w*|supports?"
    r"|e\.g|see|can|could|may|need\w*|require\w*)\b",
    re.IGNORECASE,
)


def _of_documents(project: Project) -> Iterator[Said]:
    """A document names one stage for what is trained, and every job that is sharded has one other."""
    stages = [job.setting("zero_stage") for job in project.jobs]
    held = [one for one in stages if one is not None and type(one.value) is int]
    others = {
        config.values["zero_optimization"].get("stage", 0)
        for config in project.configs
        if config.kind == "deepspeed" and isinstance(config.values.get("zero_optimization"), Mapping)
    }
    if not held or len(held) < len(stages) or len({one.value for one in held} | others) != 1:
        return
    said = [
        (Place(file, number), line, int(found[1]))
        for file, text in project.documents.items()
        for number, line in enumerate(lines_of(text), 1)
        if len(line) < 1_000 and (found := _ALL.search(line)) is not None
    ]
    if len({stage for *_, stage in said}) != 1 or said[0][2] == held[0].value:
        return
    place, line, stage = said[0]
    sentence = next((one for one in re.split(r"(?<=[a-z0-9)])[.;] ", line) if _ALL.search(one)), line)
    if _TRAINED.search(sentence) and not _OF_OTHERS.search(sentence) and not NOT_SO.search(sentence):
        yield Finding(
            f"`{place.file}` says ZeRO of stage {stage}, and the configuration that runs has stage {held[0].value}.",
            place=place,
            evidence=Evidence(Level.RESOLVED, {"claimed": stage, "zero_stage": held[0].value}),
            stake=Stake(AtStake.CLARITY),
            remedy=Remedy(Risk.BEHAVIOURAL, "Make the text and the configuration agree."),
            also=(held[0].place,),
        )


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
