"""DST004: one process drives several GPUs: a script that is started so where they are, or `nn.DataParallel`."""

import re
from collections.abc import Iterator
from dataclasses import replace

from dynotune.audit.facts.asked import adapters, number
from dynotune.audit.facts.cards import named_card, several_cards
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.launch import Allocation, Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.rule import NONE_OF, Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.spread_beside import SPREAD

WHAT_THEN = {
    Trainer.TRL: "TRL spreads the layers of one model over them, and one works at a time",
    Trainer.TRANSFORMERS: "transformers wraps the model in `DataParallel`, which copies it at every step",
}


def check(project: Project, _: Project) -> Iterator[Said]:
    yield from _started_so(project)
    for job in project.jobs:
        yield from _by_turns(job, project)
    for script in project.scripts:
        yield from _by_data_parallel(script)


def _started_so(project: Project) -> Iterator[Said]:
    for launch in project.launches:
        if launch.launcher or not launch.script:
            continue
        if not launch.program.endswith(launch.script.rpartition("/")[2]):
            continue
        job = next((job for job in project.jobs if launch.script in job.files and job.trainer in WHAT_THEN), None)
        if job is None or job.get("device_map"):
            continue
        asked = _allocated(launch, project)
        if "CUDA_VISIBLE_DEVICES" in launch.variables:
            yield from _shown(launch, job)
        elif asked is not None:
            yield _asked_for(launch, job, asked)
        elif project.environment is None:
            yield NotChecked(NONE_OF[Subject.ENVIRONMENT])
        elif len(project.environment.gpus) > 1:
            yield _finding(launch, job, len(project.environment.gpus))


def _shown(launch: Launch, job: Job) -> Iterator[Finding]:
    """`CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py`."""
    shown = launch.variables["CUDA_VISIBLE_DEVICES"]
    named = re.fullmatch(r"\d+(,\d+)+", str(shown.value).replace(" ", "")) if shown.is_known else None
    if named is None:
        return
    gpus = named[0].count(",") + 1
    yield replace(
        _finding(launch, job, gpus),
        message=f"`{launch.script}` is started as one process, and `CUDA_VISIBLE_DEVICES={shown.value}` shows it {gpus}"
        f" GPUs: {WHAT_THEN[job.trainer]}.",
        evidence=Evidence(Level.TEXT, {"GPUs": gpus, "launcher": None}),
        also=(job.home, shown.place),
    )


def _allocated(launch: Launch, project: Project) -> Allocation | None:
    """Several GPUs that the command's own job file asks for, where it starts this one program and no tasks by `srun`."""
    text = project.texts.get(launch.file, "")
    asked = [one for one in project.allocations if one.place.file == launch.file and one.gpus > 1]
    alone = sum(one.file == launch.file for one in project.launches) == 1
    tasks = re.search(r"^#SBATCH\s+(?:--ntasks\S*|-n)[= ]\s*(?!1\b)", text, re.MULTILINE)
    if (
        len(asked) != 1
        or not alone
        or tasks
        or re.search(r"\bsrun\b|\bmpirun\b|CUDA_VISIBLE_DEVICES|&\s*$", text, re.MULTILINE)
    ):
        return None
    return asked[0]


def _asked_for(launch: Launch, job: Job, asked: Allocation) -> Finding:
    found = _finding(launch, job, asked.gpus)
    return replace(
        found,
        message=f"`{launch.script}` is started as one process, and its job file asks for {asked.gpus} GPUs:"
        f" {WHAT_THEN[job.trainer]}.",
        evidence=Evidence(Level.TEXT, {"GPUs": asked.gpus, "launcher": None}),
        also=(*found.also, asked.place),
    )


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


_AT_ONCE = re.compile(
    r"data[- ]?parallel|\bDDP\b|(?:both|all|two|four|eight|every|each|\d)(?: of)?(?: the| \d)? (?:GPUs?|cards?)\b"
    r"[^.\n]{0,60}?\b(?:train|work|used|in parallel|busy|at once|share)"
    r"|(?:GPUs?|cards?)\b[^.\n]{0,40}?(?:train|work) (?:in parallel|at once)"
    r"|twice the (?:per-device )?batch|per[- ]device batch (?:x|times) (?:\d|two|four)",
    re.IGNORECASE,
)
"""Words by which a text says that GPUs work beside each other."""


def _by_turns(job: Job, project: Project) -> Iterator[Said]:
    """Layers on several GPUs, taken for data parallel by the project itself, or of a model that one of them holds."""
    held = job.setting("device_map")
    if held is None or held.value not in SPREAD or held.others or not job.is_given("device_map"):
        return
    files = set(job.files)
    if (number(job, "num_processes") or 1) > 1 or any(one.launcher for one in project.launches if one.script in files):
        return
    texts = [project.texts.get(file, "") for file in job.files]
    if any(re.search(r"CUDA_VISIBLE_DEVICES|max_memory\s*=|is_parallelizable|model_parallel", text) for text in texts):
        return
    told = several_cards(job, project)
    if told is None:
        return
    gpus, line = told
    card, model = named_card(job, project), known(job.get("model_name_or_path"))
    each = 0.7 if job.get("load_in_4bit") else 1.2 if job.get("load_in_8bit") else 2.0
    fits = bool(card and model and model.billions and adapters(job) and model.billions * each < card / 3)
    said = next((one for one in _texts(job, project) if _AT_ONCE.search(one)), "")
    if not fits and not said:
        return
    why = (
        "the text says that they train side by side"
        if said
        else f"a {model.billions:g}B model fits one"
        if model
        else ""
    )
    yield Finding(
        f"`{job.called('device_map')}: {held.value}` in one process lays the layers out over the {gpus} GPUs"
        f" (`{line[:60]}`), which work by turns; {why}.",
        place=job.place("device_map"),
        evidence=Evidence(Level.TEXT, {"GPUs": gpus, "device_map": held.value, "says": said[:120]}),
        stake=Stake(AtStake.TIME, 0.0, 1 - 1 / gpus, "the share of GPUs that wait"),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Start {gpus} processes (`accelerate launch --num_processes {gpus}`, in a notebook `notebook_launcher`), each"
            " with `device_map={'': local_rank}`.",
            effort=Effort.MINUTES,
            accuracy="A step then has as many times the rows; divide the accumulation by it for the same ones.",
            measure="nvidia-smi dmon, during a step",
        ),
    )


def _texts(job: Job, project: Project) -> Iterator[str]:
    """Sentences of the job's notebook, of comments in its scripts and of documents."""
    texts = [project.notes.get(file, "") for file in job.files]
    texts += [comment for one in project.scripts if one.file in job.files for comment in one.comments.values()]
    for text in (*texts, *project.documents.values()):
        yield from re.split(r"(?<=[.;!?])\s|\n\n", text.replace("**", ""))


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
        " call of `nn.DataParallel`, in a file with a training loop; `device_map: auto` in one process where the project's"
        " texts name several GPUs, and say that these train side by side, or name one that would hold the model.",
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
    former_names=("one-of-several-gpus",),
)
