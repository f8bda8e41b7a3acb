"""CKP001: a long run that saves nothing while it runs."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import code, connected, leads_out
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

LONG = 500
"""Updates from which on a run is long."""

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nmax_steps: 5000\n"


_SAVES = re.compile(
    r"save_pretrained|save_model|push_to_hub|\bsave_file\(|torch\.save|save_state|\.evaluate\(|\.predict\(|\.generate\(|pipeline\("
    r"|save_lora|save_adapter|export|metrics|benchmark|profil|log_history|training_loss|best_metric|hyperparameter_search"
    r"|\boptuna\b|\bray\.tune|wandb\.agent"
)
"""What keeps the model, uses it where it is, or wants a figure of it alone: then nothing is lost."""


def _thrown_away(job: Job, project: Project) -> bool:
    """The program trains, and no line of it keeps or uses what comes of it."""
    start = next((one for one in project.scripts if one.file in job.files and one.calls_of("train")), None)
    near = connected(start, project) if start is not None else ()
    return bool(near) and not leads_out(near, project) and not any(_SAVES.search(code(one)) for one in near)


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.get("save_strategy") != "no" or not job.is_given("save_strategy"):
        return
    steps, epochs = number(job, "max_steps"), number(job, "num_train_epochs")
    is_trial = steps is not None and 0 < steps < LONG
    if not is_trial and _thrown_away(job, project):
        yield Finding(
            f"`{job.called('save_strategy')}: no`, and no line of the program saves the model: what was trained is gone when"
            " the process ends.",
            place=job.place("save_strategy"),
            evidence=Evidence(Level.RESOLVED, {"save_strategy": "no", "saved by": None}),
            stake=Stake(AtStake.LOST),
            remedy=Remedy(Risk.SAFE, "Call `trainer.save_model()` behind `trainer.train()`."),
        )
        return
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
        detected=f"E1: `save_strategy: no`, given, for {LONG} updates or more than an epoch; or for any but a trial, in a"
        " program that neither saves the model nor uses it behind the training.",
        proven="The output folder while it runs.",
        deliberate=("The script saves by itself.", "A measurement, whose weights nobody needs."),
        sources=("transformers' documentation of `save_strategy`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}save_strategy: 'no'\n"}, says="5,000 updates"),
    good=Example({"sft.yaml": f"{_SFT}save_strategy: steps\n"}),
)
