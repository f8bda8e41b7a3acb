"""A text tells users to switch Liger on for its fused loss, and the trainer's release switches that loss off."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import at_least
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place

_LIGER = re.compile(r"\bliger\b|use_liger_kernel|liger[-_]kernel", re.IGNORECASE)
_TOLD = re.compile(
    r"\binstall\w*|\buse_liger_kernel\b|\bset\b|\badd\b|\benable\w*|\bturn\w* on\b|\bswitch\w* on\b", re.IGNORECASE
)
_OF_THE_LOSS = re.compile(
    r"\blogits\b|\bfused (?:linear )?(?:cross[- ]?entropy|loss)|\bfused linear\b|\blinear cross[- ]?entropy|\blm[ _]head\b",
    re.IGNORECASE,
)
"""What Liger's loss would save, and the rest of its kernels does not."""

_KNOWS = re.compile(
    r"\b(?:no longer|not|never (?:use|set|install)|cannot|nothing|without|instead of|off|deprecat\w*|useless|own fused"
    r"|before|older|until|trl ?<|used to|was|were)\b|n't\b",
    re.IGNORECASE,
)
"""Of a sentence that says so itself, or speaks of another release. `never materialised` is what is hoped for."""

_HOPED = re.compile(
    r"\b(?:never|not|no longer|without|aren't|isn't)\b[^.;]{0,24}\b(?:materiali[sz]\w*|held|kept|stored)\b"
    r"|\b(?:without|no)\s(?:\w+\s){0,2}logits\b",
    re.IGNORECASE,
)
_LISTS = re.compile(r"(?:^|/)requirements[^/]*\.txt$")


def told_of_ligers_loss(job: Job, project: Project) -> Iterator[Said]:
    concerned = [one for one in project.jobs if _switched_off(one)]
    if not concerned or concerned[0] is not job or any(one.trainer is not Trainer.TRL for one in project.jobs):
        return  # another trainer of the project may use that loss
    if any(one.get("use_liger_kernel") is True for one in project.jobs):
        return  # which is said at the key
    for place, sentence in _sentences(project):
        if not (_LIGER.search(sentence) and _TOLD.search(sentence) and _OF_THE_LOSS.search(sentence)):
            continue
        if _KNOWS.search(_HOPED.sub("", sentence)):
            continue
        version = job.versions.get("trl", "")
        yield Finding(
            f"The text tells to switch Liger on for its fused loss, and TRL {version} switches that loss off: the loss of"
            f" {'DPO' if job.method is Method.DPO else 'SFT'} is TRL's own chunked head, with Liger or without, so"
            " installing it saves nothing of the logits.",
            place=place,
            evidence=Evidence(Level.RESOLVED, {"trl": version, "text": sentence[:160]}),
            stake=Stake(AtStake.CLARITY),
            remedy=Remedy(
                Risk.SAFE,
                "Take the advice out; memory is saved by smaller micro-batches, a shorter `max_length`, or checkpointing.",
            ),
        )
        return


def _switched_off(job: Job) -> bool:
    return (
        job.trainer is Trainer.TRL
        and job.method in (Method.SFT, Method.DPO)
        and at_least(job, "trl", 1, 16) is True
        and not job.holes
    )


def _sentences(project: Project) -> Iterator[tuple[Place, str]]:
    """Of documents and notebooks' texts, lines of one paragraph joined, and comments of configurations, scripts and lists
    of requirements; each with the line on which Liger is named."""
    for file, text in (*project.documents.items(), *project.notes.items()):
        held: list[tuple[int, str]] = []
        for number, line in (*enumerate(lines_of(text), 1), (0, "")):
            if line.strip():
                held.append((number, line.strip()))
                continue
            joined = " ".join(one for _, one in held)
            if _LIGER.search(joined):
                at = next(number for number, one in held if _LIGER.search(one) or number == held[-1][0])
                whole = Place(file, at if file in project.documents else 0)
                yield from ((whole, one) for one in re.split(r"(?<=[a-z)`])\.\s+(?=[A-Z`*])", joined))
            held = []
    for file, comments in (
        *((one.file, one.comments) for one in project.configs),
        *((one.file, one.comments) for one in project.scripts),
    ):
        rows = [*comments.items()]
        for at, (number, comment) in enumerate(rows):
            if _LIGER.search(comment):
                following = [text for row, text in rows[at + 1 : at + 3] if row <= number + 2]
                yield Place(file, number), " ".join((comment, *following))
    for file in (one for one in project.texts if _LISTS.search(one)):
        for number, line in enumerate(lines_of(project.texts[file]), 1):
            if _LIGER.search(line.partition("#")[0]):
                yield Place(file, number), f"install {line}"
