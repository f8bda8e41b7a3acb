"""PAD002: packing multiplies the examples of a step and so divides the number of updates."""

import math
from collections.abc import Iterator

import numpy as np

from dynotune.audit.facts.asked import max_length, number, rows_of_a_step
from dynotune.audit.facts.cards import gpus_told
from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.own_packing import filled_to
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.told import Told, row_told, tokens_told
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.rule import NONE_OF, Example, Group, Page, Rule, Subject

MANY = 3.0
"""Times fewer updates from which on it is said."""

ENOUGH = 2_000
"""Updates with which a run has room to learn, however many fewer they are."""


_SFT = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\npacking: true\nmax_length: 4096\n"
    "per_device_train_batch_size: 1\nnum_train_epochs: 3\n"
)
FEW = 30
"""Updates of a whole run below which no learning rate, warm-up or schedule does what it was chosen for."""


def check(project: Project, _: Project) -> Iterator[Said]:
    told = tokens_told(project)
    for job in project.jobs:
        data = project.data_of(job)
        known = data is not None and bool(data.lengths) and data.per_example == 1
        # Of a file that holds far less than is told, a sample lies in the project.
        if known and data is not None and (told is None or 2 * _tokens(data) >= told.tokens):
            if job.get("packing") is True and job.method is Method.SFT:
                yield from _of_job(job, data)
        elif told is not None:
            yield from _as_told(job, told, project)
        elif job.get("packing") is True:
            yield NotChecked(NONE_OF[Subject.DATA])


def _tokens(data: DataFacts) -> float:
    return float(sum(data.lengths)) * data.rows / len(data.lengths)


def _as_told(job: Job, told: Told, project: Project) -> Iterator[Said]:
    """By the number of tokens that a document gives for the data."""
    rows, epochs, warmup = rows_of_a_step(job), number(job, "num_train_epochs"), number(job, "warmup_steps")
    packs = job.get("packing") is True
    own = None if packs else filled_to(job, project)
    length = max_length(job) if packs else own[0] if own is not None else row_told(project)
    if rows is None or length is None or not epochs or (number(job, "max_steps") or -1) > 0:
        return
    if job.setting("num_processes") is None:
        rows *= gpus_told(job, project) or 1
    each = told.tokens / length / rows
    updates = _of_an_epoch(each, job) * epochs
    never = warmup is not None and warmup >= 1 and updates <= warmup
    if each * epochs >= FEW and not never:
        return
    key = "packing" if packs else "gradient_accumulation_steps"
    yield Finding(
        f"By `{told.place.file}` the data has {told.tokens:,.0f} tokens, which is {told.tokens / length:,.0f} rows of"
        f" {length:,}: {rows:,} rows a step make about {updates:,.0f} updates over {epochs:g} epoch{'s' * (epochs != 1)}"
        + (f", less than the {warmup:g} of the warm-up: its learning rate is never reached." if never else "."),
        place=own[1] if own is not None else job.place(key),
        evidence=Evidence(
            Level.RESOLVED, {"tokens": told.tokens, "row": length, "rows a step": rows, "updates": round(updates)}
        ),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Choose the batch in tokens: fewer rows a step, or less accumulation, until there are some hundred updates.",
            effort=Effort.MINUTES,
            accuracy="More updates of smaller batches.",
            measure="The number of steps that the trainer announces at its start.",
        ),
        also=(
            told.place,
            *(
                job.place(one)
                for one in ("gradient_accumulation_steps", "per_device_train_batch_size")
                if job.is_given(one)
            ),
            *((job.place("warmup_steps"),) if never else ()),
        ),
    )


def _of_an_epoch(steps: float, job: Job) -> float:
    """Updates: transformers' trainers take a last one of what is left of an epoch."""
    return steps if job.trainer is Trainer.TORCH else float(math.ceil(steps))


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
            measure="The number of steps that the trainer announces at its start.",
        ),
        also=(data.place,),
    )


RULE = Rule(
    code="PAD002",
    name="fewer-updates",
    summary="Packing makes many times fewer updates.",
    group=Group.CORRECTNESS,
    subject=Subject.PROJECT,
    check=check,
    bad=Example(
        {
            "sft.yaml": f"{_SFT}gradient_accumulation_steps: 32\n",
            "README.md": "# Model\n\n4,000 pairs, 600k tokens in all.\n",
        },
        says="make about 15 updates",
    ),
    good=Example(
        {
            "sft.yaml": f"{_SFT}gradient_accumulation_steps: 1\n",
            "README.md": "# Model\n\n4,000 pairs, 600k tokens in all.\n",
        }
    ),
    page=Page(
        what="With packing a batch counts rows of `max_length` tokens, each with many examples, so an epoch has fewer"
        " steps at the same batch size and learning rate.",
        why="A run with 15 times fewer updates is another run: often one that has not learned what it was to learn.",
        detected="E1: the real lengths of the rows, `max_length`, batch, accumulation, processes and epochs. Said from"
        f" {MANY:g} times fewer on, where fewer than {ENOUGH:,} are left. E1: the tokens of the data by the project's own"
        f" documents, where no data was looked at: fewer than {FEW} updates, or than the warm-up has.",
        proven="`dynotune plan --config sft.yaml` prints the steps with and without packing.",
        deliberate=("The batch was chosen in tokens, with the learning rate for it.",),
        sources=("Records of runs that the project was made from",),
    ),
)
