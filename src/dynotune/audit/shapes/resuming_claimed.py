"""A comment or a document says that a run goes on by itself, and the trainer that is configured begins anew."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.claimed_settings import words_of

_SAYS = re.compile(
    r"\b(?:resumes?|restarts?|continues?|picks? up|carr(?:y|ies) on|goes on)\b[^.;]{0,40}"
    r"\b(?:automatically|by itself|on its own|where (?:it|the run) (?:left off|stopped|was))\b"
    r"|\b(?:resumes?|goes on|continues?|picks? up) from (?:the |its )?(?:last|latest|newest)\b"
    r"|\bautomatic(?:ally)? (?:resum|restart|continu)\w*|\bauto[- ]?resum\w*",
    re.IGNORECASE,
)
OFF = re.compile(
    r"(?:auto_)?resume_from_checkpoints?[\"']?\s{0,8}[:=]\s{0,8}(?:false|no|off|null|none|~|\"\"|'')(?![\w/.-])",
    re.IGNORECASE,
)
"""A key of resuming that asks for none."""

AFTER = re.compile(
    r"\b(?:after|when|if) (?:an? |the |it is )?(?:\w+ (?:is )?)?(?:crash|pre-?empt|interrupt|restart|requeue|kill|time)\w*"
)
"""When a run is gone on with, which is no condition."""

_OTHERWISE = re.compile(
    r"\b(?:not?|never|without|unless|until|if|when|could|should|would|may|might|can|cannot|set|pass|use|give|todo|fixme|was|were"
    r"|had|planned|later)\b|n't|\?",
    re.IGNORECASE,
)
_OF_A_RUN = re.compile(
    r"\b(?:runs?|train\w*|jobs?|scripts?|checkpoints?|requeue\w*|pre-?empt\w*|crash\w*|restart\w*)\b", re.IGNORECASE
)
_OF_OTHERS = re.compile(
    r"scrap|crawl|download|upload|tool\b|annotat|label(?!s\b)|index|server|conver(?:t|sion)|prepar|pre-?process|tokeni[sz]|export",
    re.IGNORECASE,
)
"""Of a document, which speaks of other programs as well."""

_KEY = re.compile(r"\b(?:auto_)?resume_from_checkpoints?\b")


def resuming_claimed(project: Project) -> Iterator[Said]:
    """Of Axolotl, which goes on where it is told to, and LLaMA-Factory, which does unless it is to write its folder anew."""
    wrong = {job.home.file: job for job in project.jobs if _begins_anew(job, project)}
    if not wrong or len(wrong) < len({job.home.file for job in project.jobs}):
        return  # the text may speak of another run
    for job in wrong.values():
        said = next(_claims(job, project), None)
        if said is None:
            continue
        key = "auto_resume_from_checkpoints" if job.trainer is Trainer.AXOLOTL else "overwrite_output_dir"
        given = _given(job, key, project)
        wanted = "true" if job.trainer is Trainer.AXOLOTL else "false"
        held = f"`{key}` is {'off' if wanted == 'true' else 'on'}" if given is not None else f"`{key}` is not set"
        yield Finding(
            f"`{said.file}` says that the run goes on by itself (line {said.line}), and {held}, with no checkpoint named:"
            " it begins at the first row each time.",
            place=given or said,
            evidence=Evidence(Level.RESOLVED, {"claim": f"{said.file}:{said.line}", key: wanted != "true"}),
            stake=Stake(AtStake.LOST),
            remedy=Remedy(Risk.OPERATIONAL, f"Set `{key}: {wanted}`, or mend the text."),
            also=(said,) if given is not None else (),
        )


def _begins_anew(job: Job, project: Project) -> bool:
    if any("resume" in word for launch in project.launches if launch.file in job.files for word in launch.words):
        return False
    if job.get("resume_from_checkpoint") or job.holes:
        return False
    values = next((one.values for one in project.configs if one.file == job.home.file), {})
    if values.get("resume_from_checkpoint"):
        return False
    if job.trainer is Trainer.AXOLOTL:
        return not values.get("auto_resume_from_checkpoints")
    return job.trainer is Trainer.LLAMA_FACTORY and values.get("overwrite_output_dir") is True


def _given(job: Job, key: str, project: Project) -> Place | None:
    config = next((one for one in project.configs if one.file == job.home.file), None)
    return config.places.get(key) if config is not None and key in config.values else None


def _claims(job: Job, project: Project) -> Iterator[Place]:
    for config in project.configs:
        if config.file == job.home.file:
            yield from (Place(config.file, line) for line, text in config.comments.items() if _is_claim(text))
    for file, document in project.documents.items():
        if not re.search(r"change|history|news|notes|todo|contribut", file.rpartition("/")[2], re.IGNORECASE):
            for number, line in enumerate(words_of(document.split("\n")), 1):
                said = (one for one in re.split(r"(?<=[a-z)\d])[.;] ", line[:600]) if _is_claim(one))
                if any(_OF_A_RUN.search(one) and not _OF_OTHERS.search(one) for one in said):
                    yield Place(file, number)


def _is_claim(text: str) -> bool:
    said = re.sub(r"\bwhere (?:it|the run) was\b", "", AFTER.sub("", text))
    return bool(_SAYS.search(text)) and not _OTHERWISE.search(said) and not _KEY.search(text)
