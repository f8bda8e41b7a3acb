"""LOR004: alpha and rank make a scale far from what is usual."""

from collections.abc import Iterator
from math import sqrt

from dynotune.audit.facts.asked import adapters, number
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

LOW, HIGH = 1 / 16, 16.0

_SFT = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\nuse_peft: true\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    rank, alpha = number(job, "lora_r"), number(job, "lora_alpha")
    if not rank or not alpha or adapters(job) is False or not (job.is_given("lora_r") or job.is_given("lora_alpha")):
        return
    root = job.get("use_rslora") is True
    scale = alpha / (sqrt(rank) if root else rank)
    if LOW <= scale <= HIGH:
        return
    by = "alpha / sqrt(r)" if root else "alpha / r"
    default = "" if job.is_given("lora_alpha") and job.is_given("lora_r") else ", one of them by default"
    yield Finding(
        f"`{job.called('lora_r')}: {rank:g}` and `{job.called('lora_alpha')}: {alpha:g}`{default} scale the adapter"
        f" by {scale:.3g}"
        f" ({by}), where 1 to 2 is usual.",
        place=job.place("lora_alpha" if job.is_given("lora_alpha") else "lora_r"),
        evidence=Evidence(Level.RESOLVED, {"r": rank, "alpha": alpha, "scale": scale}),
        stake=Stake(AtStake.CHOICE),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Set `{job.called('lora_alpha')}` to between `{job.called('lora_r')}` and twice of it.",
            accuracy="The scale multiplies what the learning rate does.",
        ),
    )


RULE = Rule(
    code="LOR004",
    name="extreme-scale",
    summary="The adapter's scale is far from what is usual.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="An adapter's output is multiplied by alpha over its rank (over the rank's root with rsLoRA).",
        why="Whoever raises the rank and leaves alpha as it was shrinks what is learned at the same rate.",
        detected=f"E1: a scale below {LOW:g} or above {HIGH:g}.",
        proven="Two short runs and their held-out loss.",
        deliberate=("Alpha was searched for together with the learning rate.",),
        sources=("PEFT's `LoraConfig`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}lora_r: 512\nlora_alpha: 16\n"}, says="0.0312"),
    good=Example({"sft.yaml": f"{_SFT}lora_r: 16\nlora_alpha: 32\n"}),
)
