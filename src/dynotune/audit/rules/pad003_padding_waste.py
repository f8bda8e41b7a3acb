"""PAD003: batches of random rows, padded to the longest, are mostly padding."""

from collections.abc import Iterator

import numpy as np

from dynotune.audit.facts.asked import at_least, max_length, micro_batch, on_gpu
from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

REAL = 0.8
"""Share of real tokens below which it is said."""

BATCHES = 2_000
"""Batches that are drawn to estimate the share."""


def check(data: DataFacts, project: Project) -> Iterator[Said]:
    if len(data.lengths) < 8 * data.per_example:
        return
    for job in project.jobs_of(data):
        pairs = job.method is Method.DPO
        padded = job.get("packing") is not True and job.get("padding_free") is not True
        if job.trainer in (Trainer.DYNOTUNE, Trainer.UNSLOTH, Trainer.UNKNOWN, Trainer.TORCH) or not on_gpu(job):
            continue  # Dynotune lays documents out side by side, and so does Unsloth
        if pairs != (data.per_example == 2) or not (padded or pairs) or _sorted(job):
            continue
        rows = micro_batch(job)
        if rows is None or rows * data.per_example < 2:
            continue
        real = real_share(np.asarray(data.lengths), rows, max_length(job), data.per_example)
        if real < REAL:
            yield _finding(job, data, rows, real)


def _sorted(job: Job) -> bool:
    """Whether rows of like length share a batch, or that cannot be told."""
    if job.get("group_by_length") is True:
        return True
    setting = job.setting("train_sampling_strategy")
    return setting is not None and setting.value != "random"


def real_share(lengths: np.ndarray, rows: int, longest: int | None, per_example: int) -> float:
    """Real tokens over processed ones, of random batches as the job makes them. lengths: [documents]."""
    cut = np.minimum(lengths, longest) if longest else lengths
    by_row = cut.reshape(-1, per_example)
    drawn = by_row[np.random.default_rng(0).integers(0, len(by_row), (BATCHES, rows))].reshape(BATCHES, -1)
    return float(drawn.sum() / (drawn.max(1) * drawn.shape[1]).sum())


def _finding(job: Job, data: DataFacts, rows: int, real: float) -> Finding:
    what = "pairs" if data.per_example == 2 else "rows"
    how = " (by estimated lengths)" if data.is_estimated else ""
    if data.per_example == 2:
        text = "Train with `dynotune dpo`: documents side by side without padding, and each prompt once"
    else:
        text = _ways(job)
    return Finding(
        f"Random batches of {rows} {what} of this data are {real:.0%} real tokens{how}; the other {1 - real:.0%} is padding,"
        " computed and thrown away.",
        place=job.place("per_device_train_batch_size"),
        evidence=Evidence(
            Level.RESOLVED,
            {
                "real share": round(real, 3),
                "rows read": data.rows,
                "median length": float(np.median(data.lengths)),
                "longest": int(max(data.lengths)),
                "lengths": data.tokenizer,
            },
        ),
        stake=Stake(
            AtStake.TIME, 0.0, 1 - real, "the share of tokens that is padding; less where the step is not bound by it"
        ),
        remedy=Remedy(
            Risk.SAFE,
            f"{text}.",
            effort=Effort.MINUTES,
            breaks="`padding_free` needs an attention that takes documents side by side, else it costs more (ATT001)."
            if "padding_free" in text
            else "",
            measure="The share of a batch's `attention_mask` that is 1.",
        ),
        also=(data.place,),
    )


def _ways(job: Job) -> str:
    """What the job's trainer has against it."""
    if job.trainer is Trainer.AXOLOTL:
        return "Set `sample_packing: true` with flash attention, or train with `dynotune sft`"
    if job.trainer is Trainer.LLAMA_FACTORY:
        return "Set `neat_packing: true` with `flash_attn: fa2`, or train with `dynotune sft`"
    grouped = "train_sampling_strategy: group_by_length" if _by_strategy(job) else "group_by_length: true"
    if job.trainer is Trainer.TRL:
        return f"Set `{grouped}`, or `padding_free: true` with flash attention; or train with `dynotune sft`"
    return f"Set `{grouped}`, or train with `dynotune sft`"


def _by_strategy(job: Job) -> bool:
    """transformers from 5.2 on has another key for it."""
    return at_least(job, "transformers", 5, 2) is not False


RULE = Rule(
    code="PAD003",
    name="padding-waste",
    summary="Batches are mostly padding.",
    group=Group.PERFORMANCE,
    subject=Subject.DATA,
    check=check,
    page=Page(
        what="Rows of a batch are padded to its longest. With lengths as mixed as those of most data, random batches are"
        " half padding.",
        why="Padding is computed like text: 16 documents a step of the baseline held 2,157 real of 6,110 tokens.",
        detected=f"E1: {BATCHES:,} random batches drawn from the real lengths as the job makes them; said below {REAL:.0%}.",
        proven="`dynotune plan --config sft.yaml` prints real and padded tokens a step.",
        deliberate=(
            "The step is so small that the host bounds it: fewer tokens would not make it faster.",
            "A model or attention that cannot keep documents apart in one row.",
        ),
        sources=("H200, 7B LoRA, 16 documents a step under TRL: 35 % real tokens (the project's baseline)",),
    ),
)
