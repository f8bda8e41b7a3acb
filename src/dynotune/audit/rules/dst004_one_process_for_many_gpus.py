"""DST004: one process drives several GPUs: a script that is started so where they are, or `nn.DataParallel`."""

from collections.abc import Iterator

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.rule import NONE_OF, Example, Group, Page, Rule, Subject

WHAT_THEN = {
    Trainer.TRL: "TRL spreads the layers of one model over them, and one works at a time",
    Trainer.TRANSFORMERS: "transformers wraps the model in `DataParallel`, which copies it at every step",
}


def check(project: Project, _: Project) -> Iterator[Said]:
    yield from _started_so(project)
    for script in project.scripts:
        yield from _by_data_parallel(script)


def _started_so(project: Project) -> Iterator[Said]:
    for launch in project.launches:
        if launch.launcher or not launch.script or "CUDA_VISIBLE_DEVICES" in launch.variables:
            continue
        if not launch.program.endswith(launch.script.rpartition("/")[2]):
            continue
        job = next((job for job in project.jobs if launch.script in job.files and job.trainer in WHAT_THEN), None)
        if job is None or job.get("device_map"):
            continue
        if project.environment is None:
            yield NotChecked(NONE_OF[Subject.ENVIRONMENT])
        elif len(project.environment.gpus) > 1:
            yield _finding(launch, job, len(project.environment.gpus))


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


def _by_data_parallel(script: Script) -> Iterator[Said]:
    if not any(True for _ in loops(script)):
        return
    for call in script.calls:
        if call.name != "torch.nn.DataParallel":
            continue
        yield Finding(
            "`nn.DataParallel` copies the weights to every GPU at each step and gathers all outputs on the first, from one"
            " process.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"call": call.name}),
            stake=Stake(AtStake.TIME, 0.05, 0.5, "a copy of all weights a step, against the time of the step"),
            remedy=Remedy(
                Risk.OPERATIONAL,
                "Use `DistributedDataParallel` under `torchrun`, one process a GPU.",
                effort=Effort.HOURS,
                breaks="The batch is each process's own then.",
                measure="dynotune profile -- torchrun --nproc_per_node 2 train.py",
            ),
        )
        return


_LOOP = """import torch
from torch.nn.parallel import DistributedDataParallel

model = {}(model.cuda())
for batch in train_loader:
    model(**batch).loss.mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


RULE = Rule(
    code="DST004",
    name="one-process-for-many-gpus",
    summary="One process drives several GPUs.",
    group=Group.PERFORMANCE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="`python train.py` is one process. On several GPUs TRL then loads the model with `device_map: auto`, and"
        " transformers' Trainer uses `DataParallel`, which replicates the module at every forward pass, by threads of one"
        " process under one lock; so does a loop that calls it.",
        why="One GPU works while the others wait, or all wait for copies: two are often slower than one, and the first runs"
        " out of memory before the others.",
        detected="E2: GPUs of this machine (`--env`), and commands without a launcher or `CUDA_VISIBLE_DEVICES`. E0: the"
        " call of `nn.DataParallel`, in a file with a training loop.",
        proven="`nvidia-smi` during a step: the first GPU's memory and load against the others'.",
        deliberate=(
            "A model that is larger than one GPU.",
            "The training runs on another machine than the audit.",
            "A trial on a machine where no launcher can be used.",
        ),
        sources=(
            "TRL 1.16: `device_map` is `auto` unless launched distributed; issues 4744, 1303, 2256",
            "PyTorch's documentation of `DataParallel`: use `DistributedDataParallel` instead, even on one node",
        ),
    ),
    bad=Example({"train.py": _LOOP.format("torch.nn.DataParallel")}, says="copies the weights"),
    good=Example({"train.py": _LOOP.format("DistributedDataParallel")}),
    formerly=("DST055",),
)
