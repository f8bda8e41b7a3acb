"""PRC003: bfloat16 is asked for on a GPU that has none."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import on_gpu
from dynotune.audit.facts.environment import Environment
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

AMPERE = 8
"""The first compute capability with bfloat16 matrix units."""


def check(environment: Environment, project: Project) -> Iterator[Said]:
    old = [gpu for gpu in environment.gpus if int(str(gpu["capability"]).partition(".")[0]) < AMPERE]
    if not old:
        return
    for job in project.jobs:
        asked = "bf16" if job.get("bf16") is True else "dtype" if job.get("dtype") == "bfloat16" else None
        if asked is None or not on_gpu(job):
            continue
        gpu = old[0]
        yield Finding(
            f"`{job.called(asked)}` asks for bfloat16, and {gpu['name']} (capability {gpu['capability']}) has no"
            " units for it:"
            " it is refused, or emulated more slowly than float32.",
            place=job.place(asked),
            evidence=Evidence(Level.PROBED, {"GPU": gpu["name"], "capability": gpu["capability"]}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(
                Risk.NUMERIC,
                "Set `fp16: true` and `bf16: false`, with weights in float32.",
                accuracy="float16 has a smaller range: its gradients are scaled, and steps that overflow are left out.",
            ),
        )


RULE = Rule(
    code="PRC003",
    name="no-bfloat16-here",
    summary="bfloat16 is asked for on a GPU without it.",
    group=Group.ENVIRONMENT,
    subject=Subject.ENVIRONMENT,
    check=check,
    page=Page(
        what="GPUs before Ampere (V100, T4, RTX 20) have matrix units for float16 and none for bfloat16.",
        why="Some versions refuse; others emulate bfloat16 without the matrix units and are slow.",
        detected="E2: the capability of this machine's GPUs against the resolved `bf16` and `dtype`.",
        proven="`dynotune env` prints the capability.",
        deliberate=("The training runs on another machine than the audit.",),
        sources=("NVIDIA's table of compute capabilities: bfloat16 matrix units from 8.0 on",),
    ),
)
