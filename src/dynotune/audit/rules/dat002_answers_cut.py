"""DAT002: `max_length` cuts a good part of the rows, or leaves some without any token that carries loss."""

from collections.abc import Iterator

import numpy as np

from dynotune.audit.facts.asked import max_length
from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

SOME = 0.05
"""Share of documents from which on it is said."""

SURE = 1.5
"""Where lengths are estimated: how many times too long a document must be to count."""


def check(data: DataFacts, project: Project) -> Iterator[Said]:
    yield from _cut(data, project)
    yield from _nothing_left(data, project)


def _cut(data: DataFacts, project: Project) -> Iterator[Said]:
    if not data.lengths:
        return
    lengths = np.asarray(data.lengths)
    for job in project.jobs_of(data):
        length = max_length(job)
        if length is None or (job.get("packing") is True and job.get("packing_strategy") in ("wrapped", "bfd_split")):
            continue
        cut = lengths > length * (SURE if data.is_estimated else 1)
        share = float(cut.mean())
        if share >= SOME:
            lost = float((lengths[cut] - length).sum() / lengths.sum())
            yield _of_many(job, data, length, share, lost)


def _of_many(job: Job, data: DataFacts, length: int, share: float, lost: float) -> Finding:
    what = "sides of pairs" if data.per_example == 2 else "rows"
    given = "" if job.is_given("max_length") else " (the default)"
    wanted = int(np.percentile(data.lengths, 99))
    about = "about " if data.is_estimated else ""
    return Finding(
        f"`{job.called('max_length')}: {length}`{given} cuts {about}{share:.0%} of the {what} and {about}{lost:.0%} of all"
        " tokens, without a word during training: those answers end in the middle and have no end token.",
        place=job.place("max_length"),
        evidence=Evidence(
            Level.RESOLVED,
            {
                "cut": round(share, 3),
                "tokens lost": round(lost, 3),
                "99th percentile": wanted,
                "lengths": data.tokenizer,
            },
        ),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Set `{job.called('max_length')}` to {wanted:,}, which 99 % of them fit into, or leave long rows out on"
            " purpose.",
            accuracy="Whole answers are learned, with their ends.",
            measure="dynotune plan --config sft.yaml",
        ),
        also=(data.place,),
    )


LOST = 0.001
"""Share of rows from which on it is said."""


def _nothing_left(data: DataFacts, project: Project) -> Iterator[Said]:
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
        if share < LOST:
            continue
        if data.is_estimated:
            yield NotChecked("lengths are estimated; give a tokenizer to count rows that lose every label", data.place)
            continue
        yield _of_no_label(job, data, length, lost, share)


def _of_no_label(job: Job, data: DataFacts, length: int, lost: int, share: float) -> Finding:
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
    code="DAT002",
    name="answers-cut",
    summary="`max_length` cuts many rows, or leaves rows no token that carries loss.",
    group=Group.DATA,
    subject=Subject.DATA,
    check=check,
    page=Page(
        what="Rows longer than `max_length` are cut, at TRL's default from 1,024 tokens on. Where a prompt alone is that"
        " long, nothing of the answer is left.",
        why="The model learns answers that break off, and long ones never learn to stop. Nothing counts what is cut. A row"
        " without a label is dropped without a count, or takes part in a step with no loss; a micro-batch of them gives NaN"
        " in trainers that divide by its labels.",
        detected=f"E1: the real lengths against `max_length`; said from {SOME:.0%} of the rows on. Where lengths are"
        f" estimated, a row counts when it seems {SURE:g} times too long. The first labelled token of every row, with the"
        f" real tokenizer and the job's mask; said from {LOST:.1%} of the rows on.",
        proven="`dynotune prepare --config sft.yaml` counts rows and tokens that are cut, and rows that lose every label.",
        deliberate=(
            "Plain text, of which any piece is as good as another.",
            "Memory allows no more.",
            "The rows are known to be noise.",
        ),
        sources=(
            "TRL 1.16: `max_length` defaults to 1024 and cuts by a slice; issue 4632",
            "TRL issue 3927; TRL drops fully masked rows without a count, and keeps them under packing",
        ),
    ),
    formerly=("DAT001",),
    former_names=("no-label-left",),
)
