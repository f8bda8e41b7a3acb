"""CKP003: two configurations write into one folder."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

MANY = 4
"""Configurations of one folder up to which it is said: more are a collection of examples, of which one is taken."""

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: {}.jsonl\nmax_length: 512\noutput_dir: {}\n"


def check(project: Project, whole: Project) -> Iterator[Said]:
    by_folder: dict[str, dict[str, Job]] = defaultdict(dict)
    for job in project.jobs:
        folder = job.get("output_dir")
        setting = job.setting("output_dir")
        if not isinstance(folder, str) or not folder.strip("./ ") or not job.is_given("output_dir") or setting is None:
            continue
        if "$" in folder or "{" in folder:
            continue  # filled in at the start, by run
        # A file that several commands start is one job that is run again.
        by_folder[str(PurePosixPath(folder))].setdefault(setting.place.file, job)
    for folder, jobs in by_folder.items():
        if 1 < len(jobs) <= MANY:
            first, *others = (jobs[file] for file in sorted(jobs))
            yield _finding(folder, first, others)


def _finding(folder: str, first: Job, others: list[Job]) -> Finding:
    places = tuple(job.place("output_dir") for job in others)
    return Finding(
        f"{len(places) + 1} configurations write into `{folder}` ({', '.join(str(place) for place in places)}): the"
        " later run"
        " replaces or continues the checkpoints of the earlier one.",
        place=first.place("output_dir"),
        evidence=Evidence(Level.RESOLVED, {"output_dir": folder, "configurations": len(places) + 1}),
        stake=Stake(AtStake.LOST),
        remedy=Remedy(Risk.OPERATIONAL, "Give each its own folder."),
        also=places,
    )


RULE = Rule(
    code="CKP003",
    name="one-folder-for-two",
    summary="Several configurations have the same output folder.",
    group=Group.OPERATION,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="Checkpoints are named by their step alone, so those of two runs in one folder replace each other.",
        why="The earlier run is lost, or the later one resumes from it where `resume_from_checkpoint: true` takes"
        " the newest.",
        detected=f"E1: equal `output_dir` in up to {MANY} different files; more are a collection. Names with"
        " variables are not"
        " judged.",
        proven="The folder's dates.",
        deliberate=("Only one of them is ever run.",),
        sources=("transformers' `checkpoint-<step>`",),
    ),
    bad=Example(
        {"one.yaml": _SFT.format("one", "runs/model"), "other.yaml": _SFT.format("other", "runs/model")},
        says="runs/model",
    ),
    good=Example({"one.yaml": _SFT.format("one", "runs/one"), "other.yaml": _SFT.format("other", "runs/other")}),
)
