"""CFG004: a key that another trainer has."""

from collections.abc import Iterator

from dynotune.audit.facts.job import Fate, Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.rules.cfg001_unknown_key import DROPS

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    for key in job.given:
        if key.fate is not Fate.ANOTHERS:
            continue
        drops = job.trainer in DROPS
        happens = "drops without a word" if drops else "stops at"
        called = f"; here it is `{key.instead}`" if key.instead else ""
        yield Finding(
            f"`{key.name}` does nothing under {job.trainer.value}, which {happens} it: {key.why}{called}.",
            place=key.place,
            evidence=Evidence(Level.TEXT, {"key": key.name, "trainer": job.trainer.value}),
            stake=Stake(AtStake.RESULT if drops else AtStake.STOPS),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Say it as `{key.instead}`, whose values may differ, or remove it." if key.instead else "Remove it.",
                accuracy="what the key asks for starts to happen" if key.instead else "",
            ),
        )


RULE = Rule(
    code="CFG004",
    name="anothers-key",
    summary="A key belongs to another trainer.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Axolotl, LLaMA-Factory and TRL have names of their own for the same things: `sequence_len`, `cutoff_len`,"
        " `max_length`. A key copied from one's file into another's does nothing.",
        why="What was asked for (packing, a length, an attention kernel) does not happen.",
        detected="E0: the key is none of this trainer's version, and is one of another's.",
        proven="The trainer's resolved configuration does not have it.",
        deliberate=("One file that two trainers read, where each drops the other's keys.",),
        sources=("the sources of TRL 1.16, Axolotl 0.19 and LLaMA-Factory 0.9.5",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}sample_packing: true\n"}, says="Axolotl's name"),
    good=Example({"sft.yaml": f"{_SFT}packing: true\n"}),
)
