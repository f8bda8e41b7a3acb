"""OPT005: commands start one configuration with different numbers of processes, and so with different batches."""

import re
from collections import defaultdict
from collections.abc import Iterator

from dynotune.audit.facts.asked import micro_batch, number, rows_of_a_step
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_RUN = "accelerate launch --num_processes {} -m trl.scripts.sft --config sft.yaml\n"
_SFT = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nmax_length: 512\nper_device_train_batch_size: 4\n"
    "gradient_accumulation_steps: 2\n"
)


def check(project: Project, whole: Project) -> Iterator[Said]:
    by_home: dict[tuple[str, float | None, float | None], list[Job]] = defaultdict(list)
    for job in project.jobs:
        known = number(job, "num_processes") and micro_batch(job) and rows_of_a_step(job)
        if (
            not known
            or not job.is_given("num_processes")
            or job.get("global_batch_size") is not None
            or _is_a_trial(job)
        ):
            continue
        if job.home.file:
            by_home[job.home.file, micro_batch(job), number(job, "gradient_accumulation_steps")].append(job)
    for (file, *_), jobs in by_home.items():
        steps = {rows_of_a_step(job): job for job in reversed(jobs)}
        largest, smallest = max(steps, key=lambda rows: rows or 0), min(steps, key=lambda rows: rows or 0)
        if largest and smallest and largest > smallest and jobs[0].trainer is not Trainer.DYNOTUNE:
            yield _finding(file, steps[smallest], steps[largest], smallest, largest)


FEW = 100
"""Steps up to which a run only tries whether it runs."""

_TRIAL = re.compile(r"(?:^|[/_.-])(?:tmp|smoke|test|debug|dry|try|trial|toy|sanity)(?:[/_.-]|$)", re.IGNORECASE)


def _is_a_trial(job: Job) -> bool:
    """A run of a few steps, or into a folder that says so: nothing is learned by it, at whatever batch."""
    steps, folder = number(job, "max_steps"), job.get("output_dir")
    return bool(steps and 0 < steps <= FEW) or (isinstance(folder, str) and _TRIAL.search(folder) is not None)


def _finding(file: str, small: Job, large: Job, fewest: int, most: int) -> Finding:
    processes = [int(number(job, "num_processes") or 1) for job in (small, large)]
    return Finding(
        f"`{file}` is started with {processes[0]} and with {processes[1]} processes at the same batch and"
        " accumulation: steps of"
        f" {fewest} and of {most} rows, which train differently at one learning rate.",
        place=large.place("num_processes"),
        evidence=Evidence(Level.RESOLVED, {"rows a step": [fewest, most], "processes": processes}),
        stake=Stake(AtStake.CHOICE),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Let the accumulation follow the number of processes (`dynotune`: `global_batch_size`).",
            accuracy="Both then take the same steps.",
        ),
        also=(small.place("num_processes"),),
    )


RULE = Rule(
    code="OPT005",
    name="batch-by-launcher",
    summary="Launchers give one configuration different batches.",
    group=Group.CORRECTNESS,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="A step holds batch x accumulation x processes rows. Two commands with different numbers of processes make two"
        " different runs of one configuration.",
        why="Runs that are compared, or that were to be the same, are not.",
        detected="E1: commands joined with the configuration that they name.",
        proven="The number of steps that each prints.",
        deliberate=("One of them is a test on a small machine.",),
        sources=("Arithmetic",),
    ),
    bad=Example({"big.sh": _RUN.format(8), "small.sh": _RUN.format(2), "sft.yaml": _SFT}, says="16 and of 64 rows"),
    good=Example({"big.sh": _RUN.format(8), "again.sh": _RUN.format(8), "sft.yaml": _SFT}),
)
