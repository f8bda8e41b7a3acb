"""OPT003: the warm-up is as long as the run, so the learning rate is never reached."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import number, rows_of_a_step
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

MOST = 0.5
"""Share of the run from which on it is said."""

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nmax_steps: 200\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    name, warmup = "warmup_steps", number(job, "warmup_steps")
    steps, source = _steps(job, project)
    if not warmup:
        name, warmup = "warmup_ratio", number(job, "warmup_ratio")
    if not warmup or not job.is_given(name):
        return
    ratio = warmup < 1  # transformers 5 takes a share in `warmup_steps` too
    share = warmup if ratio else warmup / steps if steps else None
    if share is None or share < MOST:
        return
    of = f"{share:.0%} of the run" if ratio else f"{share:.1f} times the run's {steps:,.0f} updates ({source})"
    yield Finding(
        f"`{job.called(name)}: {warmup:g}` is {of}: the learning rate is"
        f" {'reached late' if share < 1 else 'never reached'}.",
        place=job.place(name),
        evidence=Evidence(Level.RESOLVED, {name: warmup, "updates": steps, "share": round(share, 2)}),
        stake=Stake(AtStake.RESULT if share >= 1 else AtStake.CHOICE),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Warm up over 3 to 10 % of the run.",
            accuracy="The rate that was asked for is used.",
            measure="dynotune plan --config sft.yaml",
        ),
    )


def _steps(job: Job, project: Project) -> tuple[float | None, str]:
    steps = number(job, "max_steps")
    if steps is not None and steps > 0:
        return steps, f"`{job.called('max_steps')}`"
    data, rows, epochs = project.data_of(job), rows_of_a_step(job), number(job, "num_train_epochs")
    if data is None or data.sampled or rows is None or not epochs or job.get("packing") is not False:
        return None, ""
    used = data.ledger.get("rows_used", data.rows)
    return -(-used // rows) * epochs, "from the data's rows"


RULE = Rule(
    code="OPT003",
    name="warm-up-without-end",
    summary="The warm-up takes most of the run, or more.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Warm-up raises the rate from zero. Steps are often copied from a longer run, or left as they were when packing"
        " or a larger batch made the run shorter.",
        why="A run that ends while it warms up has trained at a fraction of its rate.",
        detected="E1: `warmup_steps` or `warmup_ratio` against `max_steps`, or the updates that the data's rows make.",
        proven="`learning_rate` in the log.",
        deliberate=("A short run that tries the beginning of a long one.",),
        sources=("transformers' schedulers",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}warmup_steps: 1000\n"}, says="never reached"),
    good=Example({"sft.yaml": f"{_SFT}warmup_steps: 10\n"}),
)
