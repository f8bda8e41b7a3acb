"""DAT004: rows of the evaluation data stand in the training data."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

HELD_OUT = re.compile(r"(^|[^a-z])(test|eval|evaluation|val|valid|validation|dev|heldout|held-out|held_out)([^a-z]|$)")
FEW = 3


def check(data: DataFacts, project: Project) -> Iterator[Said]:
    if not data.contents or not _is_held_out(data, project):
        return
    for train in project.data:
        if train is data or _is_held_out(train, project) or train.per_example != data.per_example:
            continue
        shared = set(train.contents) & set(data.contents)
        again = sum(content in shared for content in data.contents)
        if again >= min(FEW, len(data.contents)):
            yield _finding(train, data, again)


def _is_held_out(data: DataFacts, project: Project) -> bool:
    name = PurePosixPath(data.place.file).name.lower()
    named = (job.get("eval_dataset_name") for job in project.jobs)
    return HELD_OUT.search(name) is not None or any(isinstance(one, str) and one.endswith(name) for one in named)


def _finding(train: DataFacts, test: DataFacts, again: int) -> Finding:
    least = "at least " if train.sampled or test.sampled else ""
    return Finding(
        f"{least}{again:,} of {len(test.contents):,} rows of {test.place} stand in {train.place} too, so what is measured on"
        " them is memory.",
        place=test.place,
        evidence=Evidence(Level.RESOLVED, {"shared": again, "evaluation rows": len(test.contents)}),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Take them out of the training data (or hold rows out with `test_split_size`).",
            effort=Effort.MINUTES,
        ),
        also=(train.place,),
    )


RULE = Rule(
    code="DAT004",
    name="shared-with-evaluation",
    summary="Evaluation rows stand in the training data.",
    group=Group.DATA,
    subject=Subject.DATA,
    check=check,
    page=Page(
        what="Rows with the same content in both data sets, whatever their ids.",
        why="The evaluation's loss then says how well rows were memorised, and picks the wrong checkpoint.",
        detected="E1: hashes of the content of all rows read. Which set is held out is known from the job or the"
        " file's name.",
        proven="Evaluate on the rows that are left.",
        deliberate=("The evaluation set is a part of the training data on purpose, to watch memorising.",),
        sources=("The same hashes as `dynotune prepare`'s check of duplicates",),
    ),
)
