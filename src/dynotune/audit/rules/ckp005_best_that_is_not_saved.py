"""CKP005: the best checkpoint is asked for, and evaluation and saving do not meet."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nload_best_model_at_end: true\neval_strategy: steps\n"
    "eval_steps: 100\nsave_strategy: steps\n"
)


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.get("load_best_model_at_end") is not True or job.trainer is Trainer.DYNOTUNE:
        return
    saving, evaluating = job.get("save_strategy"), job.get("eval_strategy")
    if not isinstance(saving, str) or not isinstance(evaluating, str) or saving == "best":
        return
    if saving != evaluating:
        why = f"it saves by `{saving}` and evaluates by `{evaluating}`"
        key = "save_strategy" if job.is_given("save_strategy") else "eval_strategy"
    else:
        every, each = number(job, "save_steps"), number(job, "eval_steps") or number(job, "logging_steps")
        if saving != "steps" or not every or not each or every < 1 or each < 1 or every % each == 0:
            return
        why = f"it saves every {every:g} steps and evaluates every {each:g}, which is no part of that"
        key = "save_steps" if job.is_given("save_steps") else "eval_steps"
    yield Finding(
        f"`{job.called('load_best_model_at_end')}: true` needs an evaluation of every checkpoint, and {why}: the run stops"
        " before its first step.",
        place=job.place(key),
        evidence=Evidence(Level.RESOLVED, {"save_strategy": saving, "eval_strategy": evaluating}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Let `{job.called('save_steps')}` be a multiple of `{job.called('eval_steps')}`, with the same strategy.",
        ),
    )


RULE = Rule(
    code="CKP005",
    name="best-that-is-not-saved",
    summary="The best checkpoint is asked for, and evaluating and saving do not meet.",
    group=Group.OPERATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="The best checkpoint is the one with the best evaluation, so each must have one.",
        why="transformers refuses other combinations when the arguments are made.",
        detected="E1: both strategies and both numbers of steps as they resolve.",
        proven="The run's first seconds.",
        deliberate=("None is known.",),
        sources=("transformers' `TrainingArguments.__post_init__`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}save_steps: 250\n"}, says="every 250 steps"),
    good=Example({"sft.yaml": f"{_SFT}save_steps: 500\n"}),
)
