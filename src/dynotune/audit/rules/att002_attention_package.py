"""ATT002: an attention is asked for whose package is missing or does not work on this machine."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import attention
from dynotune.audit.facts.attention_given import as_given, give_attention
from dynotune.audit.facts.environment import Environment
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

PACKAGES = {
    "flash_attention_2": "flash-attn",
    "flash_attention_3": "flash-attn 3",
    "flash_attention_4": "flash-attn 4",
    "flex_attention": "flex attention",
    "xformers": "xformers",
}
"""The name under which an attention's package was tried."""

STAND_INS = ("flash_attention_2", "flash_attention_3", "flash_attention_4")
"""transformers takes these from `kernels` where that is installed and the package is not."""


def check(environment: Environment, project: Project) -> Iterator[Said]:
    if not environment.gpus:
        return  # nothing of it is to work here
    for job in project.jobs:
        asked = attention(job)
        if not asked or asked not in PACKAGES:
            continue
        name = PACKAGES[asked]
        package = environment.packages.get(name)
        missing = package is None or package.version is None
        if missing and asked in STAND_INS and environment.version("kernels"):
            continue
        if package is not None and package.works is not False and not missing:
            continue
        if package is None and asked != "flash_attention_2":
            continue  # these were not tried
        wrong = "is not installed" if missing or package is None else f"does not work here ({package.why})"
        yield _finding(job, asked, name, wrong, tried=package is not None and package.works is False)


def _finding(job: Job, asked: str, name: str, wrong: str, *, tried: bool) -> Finding:
    quiet = job.trainer is Trainer.LLAMA_FACTORY
    then = "it warns once and trains with sdpa" if quiet else "loading the model stops with an error"
    return Finding(
        f"`{as_given(job, asked)}` is asked for, and {name} {wrong}: {then}.",
        place=job.place("attn_implementation"),
        evidence=Evidence(Level.PROBED if tried else Level.RESOLVED, {"asked": asked, name: wrong}),
        stake=Stake(AtStake.TIME) if quiet else Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.OPERATIONAL,
            f"Install a build of {name} for this PyTorch and CUDA, or set {give_attention(job, 'sdpa')[0]}.",
            effort=Effort.MINUTES,
            breaks="Without it, packed rows meet a dense mask (ATT001).",
        ),
    )


RULE = Rule(
    code="ATT002",
    name="attention-package",
    summary="The attention that is asked for has no working package on this machine.",
    group=Group.ENVIRONMENT,
    subject=Subject.ENVIRONMENT,
    check=check,
    page=Page(
        what="Each attention needs its package, built for the PyTorch, CUDA and GPU that are here. That it is installed says"
        " little: a build for another version imports and fails, or does not import.",
        why="Some trainers stop; others print one line and train with another attention.",
        detected="E2: every package is imported and run once in a process of its own; without trying, E1 by its metadata.",
        proven="`dynotune env --accelerators` runs the same trials.",
        deliberate=("The training runs on another machine than the audit.",),
        sources=("LLaMA-Factory issues 7979 and 3171: `flash_attn: fa2` without the package trains with sdpa",),
    ),
)
