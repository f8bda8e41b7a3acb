"""DST004: several GPUs are here, and a script is started as one process."""

from collections.abc import Iterator

from dynotune.audit.facts.environment import Environment
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

WHAT_THEN = {
    Trainer.TRL: "TRL spreads the layers of one model over them, and one works at a time",
    Trainer.TRANSFORMERS: "transformers wraps the model in `DataParallel`, which copies it at every step",
}


def check(environment: Environment, project: Project) -> Iterator[Said]:
    gpus = len(environment.gpus)
    if gpus < 2:
        return
    for launch in project.launches:
        if launch.launcher or not launch.script or "CUDA_VISIBLE_DEVICES" in launch.variables:
            continue
        if not launch.program.endswith(launch.script.rpartition("/")[2]):
            continue
        job = next((job for job in project.jobs if launch.script in job.files and job.trainer in WHAT_THEN), None)
        if job is not None and not job.get("device_map"):
            yield _finding(launch, job, gpus)


def _finding(launch: Launch, job: Job, gpus: int) -> Finding:
    return Finding(
        f"`{launch.script}` is started as one process on a machine with {gpus} GPUs: {WHAT_THEN[job.trainer]}.",
        place=launch.place,
        evidence=Evidence(Level.PROBED, {"GPUs": gpus, "launcher": None}),
        stake=Stake(AtStake.TIME, 0.0, 1 - 1 / gpus, "the share of GPUs that wait"),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Start it with `accelerate launch --num_processes {gpus}` and divide the accumulation by {gpus}, or set"
            " `CUDA_VISIBLE_DEVICES=0`.",
            effort=Effort.MINUTES,
            accuracy="With as many rows a step, none; without dividing, a batch several times as large.",
        ),
        also=(job.home,),
    )


RULE = Rule(
    code="DST004",
    name="one-of-several-gpus",
    summary="A script is started as one process where several GPUs are.",
    group=Group.PERFORMANCE,
    subject=Subject.ENVIRONMENT,
    check=check,
    page=Page(
        what="`python train.py` is one process. On several GPUs TRL then loads the model with `device_map: auto`, and"
        " transformers' Trainer uses `DataParallel`.",
        why="One GPU works while the others wait, or all wait for copies.",
        detected="E2: GPUs of this machine, and commands without a launcher or `CUDA_VISIBLE_DEVICES`.",
        proven="`nvidia-smi` during a step.",
        deliberate=("A model that is larger than one GPU.", "The training runs on another machine than the audit."),
        sources=("TRL 1.16: `device_map` is `auto` unless launched distributed; issues 4744, 1303, 2256",),
    ),
)
