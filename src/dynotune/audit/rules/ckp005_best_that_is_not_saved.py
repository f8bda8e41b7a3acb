"""CKP005: the best checkpoint is asked for, and evaluation and saving do not meet, or the worst is taken for it."""

import re
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


_LESS = re.compile(r"(loss|perplexity|ppl|wer|cer|mae|mse|rmse|error)$")
_MORE = re.compile(
    r"(accuracy|acc|f1|bleu|rouge\w*|exact_match|em|precision|recall|auc|reward\w*|win_rate|pass_at_\d+)$"
)


def check(job: Job, project: Project) -> Iterator[Said]:
    yield from _never_meet(job)
    yield from _wrong_way(job)


def _wrong_way(job: Job) -> Iterator[Said]:
    metric, greater = job.get("metric_for_best_model"), job.setting("greater_is_better")
    if not isinstance(metric, str) or job.trainer is Trainer.DYNOTUNE or job.get("load_best_model_at_end") is not True:
        return
    told = greater.value if greater is not None and job.is_given("greater_is_better") else None
    if told is None:
        taken = not metric.endswith("loss")  # what transformers makes of it
    elif isinstance(told, bool):
        taken = told
    else:
        return
    name = metric.lower()
    if not (_LESS.search(name) and taken) and not (_MORE.search(name) and not taken):
        return
    key = "greater_is_better" if isinstance(told, bool) else "metric_for_best_model"
    how = (
        f"`{job.called('greater_is_better')}: {str(told).lower()}`"
        if isinstance(told, bool)
        else "the default for its name"
    )
    yield Finding(
        f"The best checkpoint is chosen by `{metric}`, and {how} takes the {'largest' if taken else 'smallest'}: the worst"
        " one is kept and loaded at the end.",
        place=job.place(key),
        evidence=Evidence(Level.RESOLVED, {"metric": metric, "greater is better": taken}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Set `{job.called('greater_is_better')}: {str(not taken).lower()}`.",
            accuracy="The best checkpoint is the model.",
        ),
        also=(job.place("metric_for_best_model"),),
    )


def _never_meet(job: Job) -> Iterator[Said]:
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
    summary="The best checkpoint is asked for, and evaluating and saving do not meet, or the worst is taken.",
    group=Group.OPERATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="The best checkpoint is the one with the best evaluation, so each must have one.",
        why="transformers refuses other combinations when the arguments are made. By the wrong sign of a metric it keeps"
        " the worst, and says nothing.",
        detected="E1: both strategies and both numbers of steps as they resolve; `greater_is_better` against the metric's"
        " name (losses and errors fall, accuracies and rewards rise).",
        proven="The run's first seconds.",
        deliberate=("None is known.",),
        sources=("transformers' `TrainingArguments.__post_init__`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}save_steps: 250\n"}, says="every 250 steps"),
    good=Example({"sft.yaml": f"{_SFT}save_steps: 500\n"}),
    also_bad=(
        Example(
            {"sft.yaml": f"{_SFT}save_steps: 500\nmetric_for_best_model: eval_loss\ngreater_is_better: true\n"},
            says="the worst one is kept",
        ),
    ),
)
