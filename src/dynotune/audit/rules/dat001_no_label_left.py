"""DAT001: rows of which truncation leaves no token that carries loss."""

from collections.abc import Iterator

import numpy as np

from dynotune.audit.facts.asked import max_length
from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

SOME = 0.001
"""Share of rows from which on it is said."""


def check(data: DataFacts, project: Project) -> Iterator[Said]:
    if not data.first_labels:
        return
    for job in project.jobs_of(data):
        length = max_length(job)
        if length is None or job.get("truncation_mode", "keep_start") != "keep_start":
            continue
        if job.get("packing_strategy") in ("wrapped", "bfd_split") and job.get("packing") is True:
            continue  # nothing is cut off
        lost = int(np.count_nonzero(np.asarray(data.first_labels) >= length))
        share = lost / len(data.first_labels)
        if share < SOME:
            continue
        if data.is_estimated:
            yield NotChecked("lengths are estimated; give a tokenizer to count rows that lose every label", data.place)
            continue
        yield _finding(job, data, length, lost, share)


def _finding(job: Job, data: DataFacts, length: int, lost: int, share: float) -> Finding:
    return Finding(
        f"{lost:,} of {len(data.first_labels):,} rows ({share:.1%}) lose every token that carries loss at"
        f" `{job.called('max_length')}: {length}`: their answers begin behind the cut.",
        place=job.place("max_length"),
        evidence=Evidence(
            Level.RESOLVED, {"rows": lost, "share": share, "max_length": length, "tokenizer": data.tokenizer}
        ),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Raise `{job.called('max_length')}` to {int(np.max(data.lengths)):,} (the longest row), or shorten the"
            " prompts.",
            accuracy="Rows that taught nothing, or were dropped without a word, are learned.",
            measure="dynotune prepare --config sft.yaml",
        ),
        also=(data.place,),
    )


RULE = Rule(
    code="DAT001",
    name="no-label-left",
    summary="Truncation leaves rows without any token that carries loss.",
    group=Group.DATA,
    subject=Subject.DATA,
    check=check,
    page=Page(
        what="Long rows are cut at `max_length`. Where a prompt alone is that long, nothing of the answer is left.",
        why="Such a row is dropped without a count, or takes part in a step with no loss; a micro-batch of them gives NaN in"
        " trainers that divide by its labels.",
        detected="E1: the first labelled token of every row, with the real tokenizer and the job's mask.",
        proven="`dynotune prepare --config sft.yaml` counts them in the ledger.",
        deliberate=("The rows are known to be noise.",),
        sources=("TRL issue 3927; TRL drops fully masked rows without a count, and keeps them under packing",),
    ),
)
