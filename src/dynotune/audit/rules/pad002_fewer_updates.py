"""PAD002: packing multiplies the examples of a step and so divides the number of updates."""

from collections.abc import Iterator

import numpy as np

from dynotune.audit.facts.asked import max_length, number, rows_of_a_step
from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.job import Job, Method
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

MANY = 3.0
"""Times fewer updates from which on it is said."""

ENOUGH = 2_000
"""Updates with which a run has room to learn, however many fewer they are."""


def check(data: DataFacts, project: Project) -> Iterator[Said]:
    if not data.lengths or data.per_example != 1:
        return
    for job in project.jobs_of(data):
        if job.get("packing") is True and job.method is Method.SFT:
            yield from _of_job(job, data)


def _of_job(job: Job, data: DataFacts) -> Iterator[Said]:
    length, rows = max_length(job), rows_of_a_step(job)
    steps = number(job, "max_steps")
    if steps is not None and steps > 0:
        return  # the number of updates is the user's; how much they see is another question
    if length is None or rows is None:
        yield NotChecked("the row's length or the batch cannot be told", job.place("packing"))
        return
    lengths = np.minimum(np.asarray(data.lengths), length)
    factor = len(lengths) / max(1.0, float(lengths.sum()) / length)
    epochs = number(job, "num_train_epochs")
    scale = data.rows / len(lengths)
    without = len(lengths) * scale * (epochs or 1) / rows
    if factor < MANY or without / factor > ENOUGH:
        return
    some = "at least " if data.sampled else ""
    by = ", by estimated lengths (`--tokenizer` counts them)" if data.is_estimated else ""
    over = f"over {epochs:g} epoch{'s' * (epochs != 1)}" if epochs else "an epoch"
    yield Finding(
        f"`{job.called('packing')}: true` puts {factor:.0f} examples into a row of {length:,} tokens, so a step holds"
        f" {factor * rows:,.0f} examples instead of {rows:,}: {some}{without / factor:,.0f} updates {over} instead of"
        f" {some}{without:,.0f}{by}.",
        place=job.place("packing"),
        evidence=Evidence(
            Level.RESOLVED,
            {
                "examples a row": round(factor, 1),
                "updates": round(without / factor),
                "updates without packing": round(without),
                "mean length": round(float(lengths.mean())),
                "lengths": "estimated" if data.is_estimated else data.tokenizer,
            },
        ),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Keep {rows:,} examples a step: make the batch {factor:.0f} times smaller, or train with `dynotune sft` and"
            " `packing: false`, which packs without changing what a step contains.",
            effort=Effort.MINUTES,
            accuracy="More updates of smaller batches: the learning rate that was tuned without packing fits again.",
            measure="dynotune plan --config sft.yaml",
        ),
        also=(data.place,),
    )


RULE = Rule(
    code="PAD002",
    name="fewer-updates",
    summary="Packing makes many times fewer updates.",
    group=Group.CORRECTNESS,
    subject=Subject.DATA,
    check=check,
    page=Page(
        what="With packing a batch counts rows of `max_length` tokens, each with many examples, so an epoch has fewer"
        " steps at the same batch size and learning rate.",
        why="A run with 15 times fewer updates is another run: often one that has not learned what it was to learn.",
        detected="E1: the real lengths of the rows, `max_length`, batch, accumulation, processes and epochs. Said from"
        f" {MANY:g} times fewer on, where fewer than {ENOUGH:,} are left.",
        proven="`dynotune plan --config sft.yaml` prints the steps with and without packing.",
        deliberate=("The batch was chosen in tokens, with the learning rate for it.",),
        sources=("Records of runs that the project was made from",),
    ),
)
