"""HST053: copies to the GPU from memory that is not pinned, where it was turned off or `non_blocking` counts on it."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import on_gpu
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.steps import loops, text_at
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.made_on_the_device import made_on_the_device
from dynotune.audit.shapes.unpinned_by_configuration import unpinned_by_configuration

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from _of_a_job(job, project)
    for script in project.scripts:
        yield from unpinned_by_configuration(script, project)
        yield from made_on_the_device(script, project)


def _of_a_job(job: Job, project: Project) -> Iterator[Said]:
    if job.get("dataloader_pin_memory") is not False or not on_gpu(job) or job.trainer is Trainer.DYNOTUNE:
        return
    wsl = project.environment is not None and project.environment.wsl
    copies = _asynchronous(job, project)
    if wsl or (copies is None and not job.is_given("dataloader_pin_memory")):
        return
    flags = [one.key for one in job.settings["dataloader_pin_memory"].via if one.key.startswith("-")]
    if any("pin" not in one for one in flags):
        return  # it goes with the device, which another flag chooses
    name, place = job.called("dataloader_pin_memory"), job.place("dataloader_pin_memory")
    how = ", so `non_blocking=True` does nothing" if copies is not None else ""
    yield Finding(
        f"`{name}` is off{how}: each copy of a batch to the GPU goes through a buffer, and the host waits for it.",
        place=copies if copies is not None and not place.line else place,
        evidence=Evidence(Level.RESOLVED, {"pin_memory": False, "non_blocking": copies is not None}),
        stake=Stake(AtStake.TIME, 0.0, 0.02, "batches of ids are small; more where images or long rows are copied"),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `{name}: true`.",
            (job.set("dataloader_pin_memory", True),) if job.trainer is not Trainer.TORCH else (),
            measure="dynotune profile -- python train.py",
        ),
        also=(*((copies,) if copies is not None else ()), *_through(job)),
    )


def _through(job: Job) -> tuple[Place, ...]:
    """Where a switch comes from that a launcher or a file of variables sets."""
    setting = job.setting("dataloader_pin_memory")
    return tuple(one for one in setting.via if one.line) if setting is not None else ()


def _asynchronous(job: Job, project: Project) -> Place | None:
    """A copy in the job's loop that is to go on by itself."""
    if job.trainer is not Trainer.TORCH:
        return None
    for script in (one for one in project.scripts if one.file in job.files):
        if re.search(r"pin_memory\(|[aA]ccelerat", script.source):
            return None
        for loop in loops(script):
            for call in loop.has("to", "cuda"):
                if "non_blocking=True" in text_at(script, call.place):
                    return call.place
    return None


RULE = Rule(
    code="HST053",
    name="copies-that-wait",
    summary="Batches are copied to the GPU from memory that is not pinned.",
    group=Group.PERFORMANCE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="The GPU copies by itself from pinned memory alone. From other memory the driver copies twice, and waits;"
        " `non_blocking=True` changes nothing there.",
        why="The loader's work does not overlap with the step. With batches of ids it is little, and it is free.",
        detected="E1: `dataloader_pin_memory` is given as false; or a loader without `pin_memory` feeds copies with"
        " `non_blocking=True`; or one of Lightning's gets the key from a configuration. E0: a generator of batches"
        " that makes"
        " tensors from lists on the device, with nothing prepared ahead. Not said under WSL, where pinned memory is"
        " short.",
        proven="`dynotune profile -- python train.py` names copies from pageable memory (MSR090).",
        deliberate=("Host memory that may be locked is short.",),
        sources=("PyTorch's tutorial on `pin_memory` and `non_blocking`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}dataloader_pin_memory: false\n"}, says="is off"),
    good=Example({"sft.yaml": f"{_SFT}dataloader_pin_memory: true\n"}),
)
