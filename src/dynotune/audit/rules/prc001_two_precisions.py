"""PRC001: bf16 and fp16 are both asked for."""

from collections.abc import Iterator

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.get("bf16") is not True or job.get("fp16") is not True:
        return
    if not job.is_given("bf16") and not job.is_given("fp16"):
        return
    yield Finding(
        f"`{job.called('bf16')}` and `{job.called('fp16')}` are both on; only one can be, so the run stops before its first"
        " step.",
        place=job.place("fp16" if job.is_given("fp16") else "bf16"),
        evidence=Evidence(Level.RESOLVED, {"bf16": True, "fp16": True}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Set `{job.called('fp16')}: false`, or `{job.called('bf16')}: false` on a GPU without bfloat16.",
            (job.set("fp16", False),),
        ),
        also=(job.place("bf16"),),
    )


RULE = Rule(
    code="PRC001",
    name="two-precisions",
    summary="`bf16` and `fp16` are both on.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Mixed precision computes in bfloat16 or in float16, not in both.",
        why="transformers refuses the pair: `At most one of fp16 and bf16 can be True, but not both`.",
        detected="E1: both as they resolve, one of them given.",
        proven="The run's first seconds.",
        deliberate=("None is known.",),
        sources=("transformers' `TrainingArguments.__post_init__`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}bf16: true\nfp16: true\n"}, says="only one can be"),
    good=Example({"sft.yaml": f"{_SFT}bf16: true\nfp16: false\n"}),
)
