"""DAT006: the cache of tokenised data is thrown away at every start."""

from collections.abc import Iterator

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.asked import given
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

TOKENS_A_SECOND = 0.25e6
"""What transformers-style preparation in one process does."""

_LF = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset:"
    " mine\ntemplate: qwen\n"
    "cutoff_len: 2048\noutput_dir: saves/mine\n"
)


def check(job: Job, project: Project) -> Iterator[Said]:
    key = given(job, "overwrite_cache")
    if key is None or key.value is not True or job.trainer is not Trainer.LLAMA_FACTORY:
        return
    data = project.data_of(job)
    seconds = None
    if data is not None and data.lengths and not data.sampled:
        processes = job.get("dataset_num_proc") or 1
        seconds = sum(data.lengths) / TOKENS_A_SECOND / (processes if isinstance(processes, int) else 1)
        if seconds < 10:
            return
    cost = f", about {seconds:,.0f} s" if seconds is not None else ""
    yield Finding(
        f"`overwrite_cache: true` tokenises all data again at every start{cost}.",
        place=key.place,
        evidence=Evidence(Level.RESOLVED, {"overwrite_cache": True, "seconds": seconds}),
        stake=Stake(AtStake.TIME, 0.0, 0.0, "a start, not a step"),
        remedy=Remedy(
            Risk.SAFE,
            "Set `overwrite_cache: false`.",
            (Change(Edit.SET, key.place, key.name, False),),
            breaks="A cache does not notice every change: clear it after editing a template or loading code.",
        ),
    )


RULE = Rule(
    code="DAT006",
    name="tokenised-every-time",
    summary="All data is tokenised again at every start.",
    group=Group.PERFORMANCE,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Prepared data is kept between runs unless `overwrite_cache` says that it is not to be.",
        why="Preparing takes minutes to hours, while all GPUs wait.",
        detected="E1: `overwrite_cache: true`, given. With data, the seconds that a process takes.",
        proven="The time between two starts and their first steps.",
        deliberate=("The data or its template changes between runs.", "It is small: seconds."),
        sources=("TRL on two cores: 0.25 M tokens a second (the project's notes on its peers)",),
    ),
    bad=Example({"run.yaml": f"{_LF}overwrite_cache: true\n"}, says="every start"),
    good=Example({"run.yaml": f"{_LF}overwrite_cache: false\n"}),
)
