"""DPO003: padding-free is asked for in DPO, where TRL does not have it."""

from collections.abc import Iterator

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.asked import at_least, given
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_DPO = "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\ndataset_name: pairs.jsonl\nbeta: 0.1\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.method is not Method.DPO:
        return
    if job.trainer is Trainer.TRL and at_least(job, "trl", 1, 0) is not False:
        name = "padding_free"
    elif job.trainer is Trainer.AXOLOTL:
        name = "dpo_padding_free"
    else:
        return
    key = given(job, name)
    on = key.value if key is not None else job.get(name)
    if on is not True:
        return
    place = key.place if key is not None else job.place(name)
    yield Finding(
        f"`{name}: true` does nothing: TRL's DPO switches it off with one warning and pads pairs as before.",
        place=place,
        evidence=Evidence(Level.RESOLVED, {name: True, "trl": job.versions.get("trl")}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.SAFE,
            "Take it out. `dynotune dpo` lays pairs out without padding, each prompt once.",
            (Change(Edit.REMOVE, place, name),),
        ),
    )


RULE = Rule(
    code="DPO003",
    name="no-padding-free-dpo",
    summary="`padding_free` does nothing in TRL's DPO.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="TRL's DPO lost padding-free batches when it was rewritten. The key is still accepted.",
        why="Pairs are padded to the longest of all sides of a batch: 36 to 62 % of the tokens in the project's"
        " measurements.",
        detected="E1: the key in a DPO job of TRL 1 or later, or of Axolotl, which hands it on.",
        proven="The warning in the log: `temporarily unavailable after a refactor`.",
        deliberate=("It is to be on as soon as TRL has it again.",),
        sources=("TRL 1.16's `dpo_trainer.py`; TRL pull requests 3906 and 7014",),
    ),
    bad=Example({"dpo.yaml": f"{_DPO}padding_free: true\n"}, says="does nothing"),
    good=Example({"dpo.yaml": _DPO}),
)
