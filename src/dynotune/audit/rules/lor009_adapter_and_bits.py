"""LOR009: Axolotl's kind of adapter and the bits of its base contradict each other."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer is not Trainer.AXOLOTL:
        return
    adapter, four, eight = (given(job, name) for name in ("adapter", "load_in_4bit", "load_in_8bit"))
    if adapter is None or adapter.value != "qlora":
        return
    if eight is not None and eight.value is True:
        wrong = eight
    elif four is not None and four.value is False and (eight is None or eight.value is not True):
        wrong = four
    else:
        return
    yield Finding(
        f"`adapter: qlora` with `{wrong.name}: {str(wrong.value).lower()}`: QLoRA's base has four bits, and"
        f" Axolotl refuses this.",
        place=wrong.place,
        evidence=Evidence(Level.RESOLVED, {"adapter": "qlora", wrong.name: wrong.value}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Set `load_in_4bit: true` and `load_in_8bit: false`, or `adapter: lora`.",
            accuracy="The base is rounded to other bits.",
        ),
        also=(adapter.place,),
    )


_RUN = (
    "base_model: Qwen/Qwen2.5-0.5B\nadapter: qlora\nload_in_4bit: {}\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
    "datasets:\n  - path: data.jsonl\n    type: alpaca\nsequence_len: 2048\nmicro_batch_size: 4\nval_set_size: 0.02\n"
)
RULE = Rule(
    code="LOR009",
    name="adapter-and-bits",
    summary="The kind of adapter and the bits of its base contradict each other.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Axolotl takes `qlora` for a base of four bits and validates it.",
        why="The run stops at the start.",
        detected="E1: `adapter`, `load_in_4bit` and `load_in_8bit` as given.",
        proven="`axolotl preprocess run.yml`.",
        deliberate=("None that is known.",),
        sources=("Axolotl's validation of `adapter: qlora`",),
    ),
    bad=Example({"run.yml": _RUN.format("false")}, says="four bits"),
    good=Example({"run.yml": _RUN.format("true")}),
)
