"""CKP001: a long run that saves nothing while it runs."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

LONG = 500
"""Updates from which on a run is long."""

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nmax_steps: 5000\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.get("save_strategy") != "no" or not job.is_given("save_strategy"):
        return
    steps, epochs = number(job, "max_steps"), number(job, "num_train_epochs")
    if steps is not None and steps > 0:
        if steps < LONG:
            return
        length = f"{steps:,.0f} updates"
    elif epochs is not None and epochs > 1 and job.is_given("num_train_epochs"):
        length = f"{epochs:g} epochs"
    else:
        return
    yield Finding(
        f"`{job.called('save_strategy')}: no`: a crash, a full disk or a lost machine costs all of {length}.",
        place=job.place("save_strategy"),
        evidence=Evidence(Level.RESOLVED, {"save_strategy": "no", "updates": steps, "epochs": epochs}),
        stake=Stake(AtStake.LOST),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `{job.called('save_strategy')}: steps` with `save_total_limit: 2`.",
            (job.set("save_strategy", "steps"), job.set("save_total_limit", 2)),
            breaks="Checkpoints take disk, and a moment each.",
        ),
    )


RULE = Rule(
    code="CKP001",
    name="nothing-saved",
    summary="A long run saves no checkpoint.",
    group=Group.OPERATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="With `save_strategy: no` weights are written at the end, by whatever calls for it.",
        why="Everything between is lost with the process.",
        detected=f"E1: `save_strategy: no`, given, for {LONG} updates or more than an epoch.",
        proven="The output folder while it runs.",
        deliberate=("The script saves by itself.", "A measurement, whose weights nobody needs."),
        sources=("transformers' documentation of `save_strategy`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}save_strategy: 'no'\n"}, says="5,000 updates"),
    good=Example({"sft.yaml": f"{_SFT}save_strategy: steps\n"}),
)
