"""HST050: keys of loader workers without any worker."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\ndataloader_prefetch_factor: 4\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    if number(job, "dataloader_num_workers") != 0 or job.trainer is Trainer.DYNOTUNE:
        return
    prefetch = number(job, "dataloader_prefetch_factor")
    if prefetch is not None and job.is_given("dataloader_prefetch_factor"):
        key, shown = "dataloader_prefetch_factor", f"{prefetch:g}"
    elif job.get("dataloader_persistent_workers") is True and job.is_given("dataloader_persistent_workers"):
        key, shown = "dataloader_persistent_workers", "true"
    else:
        return
    given = "" if job.is_given("dataloader_num_workers") else " (the default)"
    yield Finding(
        f"`{job.called(key)}: {shown}` needs workers, and `dataloader_num_workers` is 0{given}: the run stops.",
        place=job.place(key),
        evidence=Evidence(Level.RESOLVED, {key: shown, "dataloader_num_workers": 0}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.SAFE,
            f"Take `{job.called(key)}` out, or set `dataloader_num_workers: 2`.",
            (job.set("dataloader_num_workers", 2),),
        ),
    )


RULE = Rule(
    code="HST050",
    name="workers-of-none",
    summary="Keys of loader workers are set, and there are no workers.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Prefetching and persistent workers are of loader processes. With none, batches are made between steps.",
        why="transformers and PyTorch refuse the combination.",
        detected="E1: the keys, given, and `dataloader_num_workers` as it resolves.",
        proven="The run's first seconds.",
        deliberate=("None is known.",),
        sources=("transformers' `TrainingArguments`; PyTorch's `DataLoader`",),
    ),
    bad=Example({"sft.yaml": _SFT}, says="needs workers"),
    good=Example({"sft.yaml": f"{_SFT}dataloader_num_workers: 2\n"}),
)
