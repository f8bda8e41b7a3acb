"""PAD004: rows of like length share batches, which is another order of the data, or does nothing."""

from collections.abc import Iterator

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.get("group_by_length") is True:
        name, shown = "group_by_length", "true"
    elif job.get("train_sampling_strategy") == "group_by_length":
        name, shown = "train_sampling_strategy", "group_by_length"
    else:
        return
    packed = job.get("packing") is True
    key = f"`{job.called(name)}: {shown}`"
    off = "random" if name == "train_sampling_strategy" else False
    effect = (
        "sorts rows that packing has already made equally long: it changes their order and saves no padding"
        if packed
        else "puts rows of like length into a batch: less padding, and batches that are no random sample any more, so the"
        " loss moves in waves and the longest rows come together"
    )
    yield Finding(
        f"{key} {effect}.",
        place=job.place(name),
        evidence=Evidence(Level.RESOLVED, {name: shown, "packing": packed}),
        stake=Stake(AtStake.CLARITY if packed else AtStake.CHOICE),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Take {key} out"
            + ("." if packed else ", and avoid padding by laying documents side by side (`dynotune sft`)."),
            (job.set(name, off),),
            accuracy="Rows come in another order.",
        ),
    )


RULE = Rule(
    code="PAD004",
    name="grouped-by-length",
    summary="Grouping by length changes which examples meet in a step.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="transformers shuffles, then sorts groups of 50 batches by length, so that a batch has rows of like length.",
        why="Padding shrinks, but what a step sees is no random sample: where length goes with kind, neither is its"
        " gradient. Under packing all rows are equally long, and only the order changes.",
        detected="E1: `group_by_length`, or `train_sampling_strategy: group_by_length` (transformers 5).",
        proven="Look at the loss of single steps: it moves in waves of 50 batches.",
        deliberate=("Padding was measured to cost more than the order is thought to matter.",),
        sources=("transformers' `LengthGroupedSampler`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}train_sampling_strategy: group_by_length\n"}, says="like length"),
    good=Example({"sft.yaml": f"{_SFT}train_sampling_strategy: random\n"}),
)
