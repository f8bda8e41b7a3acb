"""A project says that its loss is on answers alone, and TRL's command line gets conversations, or texts, without a key that
would put it there."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.claims_of_comments import comments_of, wants_answers
from dynotune.audit.shapes.masking_of_trl import has
from dynotune.audit.shapes.whole_labels_under_a_claim import claim_in_documents

_CHATS = ("messages", "sharegpt")
_TEXTS = "text in the column"
_HOW_TO = re.compile(r"\b(?:set|option\w*|flag|can|could|may|either|default|choose)\b|_only_loss", re.IGNORECASE)
"""Of a sentence that says how it may be had."""


def rows_under_a_claim(project: Project) -> Iterator[Said]:
    """Of jobs without a script, which could mask rows itself. Where only some of the project's jobs are so, a document may
    speak of the others."""
    jobs = {job.home.file: job for job in project.jobs}
    found = {file: what for file, job in jobs.items() if (what := _rows(job, project))}
    for file, what in found.items():
        job = jobs[file]
        claim = _in_comments(job, project) or (_in_documents(project) if len(found) == len(jobs) else None)
        if claim is None:
            continue
        named = job.is_given("dataset_name")
        yield Finding(
            f"`{claim.file}` says that the loss is on answers alone (line {claim.line}), and TRL gets {what} without"
            f" `assistant_only_loss`: nothing masks the prompt, and the loss is on it as well.",
            place=job.place("dataset_name") if named else job.home,
            evidence=Evidence(Level.RESOLVED, {"rows": what, "assistant_only_loss": False}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"{_way(what, project)}; or mend the text.",
                effort=Effort.LINE,
                accuracy="Loss on answers alone, as the text says.",
                measure="Print the labels of one row that are not -100.",
            ),
            also=(claim,),
        )


def _rows(job: Job, project: Project) -> str:
    """What the trainer gets, in words; empty: rows that it masks, or that are not known."""
    if job.trainer is not Trainer.TRL or job.method is not Method.SFT or job.holes:
        return ""
    if any(one.file in job.files for one in project.scripts):
        return ""
    if job.get("assistant_only_loss") or job.get("completion_only_loss") or job.is_given("assistant_only_loss"):
        return ""
    data = project.data_of(job)
    form = data.format.lower() if data is not None else ""
    if form.startswith(_CHATS):
        return "rows of `messages`"
    return "rows of whole texts" if form.startswith(_TEXTS) else ""


def _way(what: str, project: Project) -> str:
    if "messages" in what and has(project, "assistant_only_loss"):
        return "Set `assistant_only_loss: true` (the chat template needs its `{% generation %}` mark)"
    return "Give rows with `prompt` and `completion`, of which TRL trains on the completion alone"


def _in_documents(project: Project) -> Place | None:
    claim = claim_in_documents(project)
    line = project.documents[claim.file].split("\n")[claim.line - 1] if claim is not None else ""
    return None if _HOW_TO.search(line) else claim


def _in_comments(job: Job, project: Project) -> Place | None:
    """Of its configuration, or of the launcher that has it all in flags."""
    return next((Place(file, line) for file, line, text in comments_of(job, project) if wants_answers(text)), None)
