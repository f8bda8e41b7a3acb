"""DST005: a command starts other processes than the job file asks for: more on a node than GPUs, or on one node alone."""

import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.launch import Allocation, Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.setting import Setting
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.read.launchers.distribution import processes_of_a_node
from dynotune.audit.read.launchers.makefile import rows_of_goals
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.launched_by_each_task import launched_by_each_task
from dynotune.audit.shapes.nodes_that_do_not_join import nodes_that_do_not_join

_JOB = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:{}\n"
_JOB += "srun torchrun --nproc_per_node=8 -m trl.scripts.sft --config sft.yaml\n"
_SFT = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\nmax_length: 2048\n"


def check(project: Project, whole: Project) -> Iterator[Said]:
    configs = {config.file: config for config in project.configs}
    yield from _hidden(project, configs)
    for allocation in project.allocations:
        found = (
            nodes_that_do_not_join(one, allocation.place.file, project, configs)
            for one in _started(allocation, project)
        )
        yield from (one for one in found if one is not None)
        each = (launched_by_each_task(one, allocation, project, configs) for one in _started(allocation, project))
        yield from [one for one in each if one is not None][:1]
        if _asked_otherwise(allocation, project):
            continue
        yield from _fewer(allocation, project, configs)
        said = set()
        for launch in _started(allocation, project):
            count = processes_of_a_node(launch, configs)
            if count is None or count.value <= allocation.gpus or "gres" in launch.launcher_flags:
                continue
            if count.place not in said:
                said.add(count.place)
                yield _finding(allocation, count)


_OTHERS = re.compile(
    r"CUDA_VISIBLE_DEVICES|\bvllm\b|\bserve\b|\bwait\b|[^&>|]&\s*$|--array|max_memory|device_map", re.MULTILINE
)
"""Of a job whose other GPUs may have something to do."""


def _fewer(allocation: Allocation, project: Project, configs: Mapping[str, ConfigFile]) -> Iterator[Said]:
    """One command, of several processes, leaves GPUs of the node to nobody."""
    starts = list(_started(allocation, project))
    count = processes_of_a_node(starts[0], configs) if len(starts) == 1 else None
    if count is None or not 1 < count.value < allocation.gpus:
        return
    files = {allocation.place.file, starts[0].file}
    if any(_OTHERS.search(project.texts.get(file, "")) for file in files) or "gres" in starts[0].launcher_flags:
        return
    yield Finding(
        f"{count.value} processes are started on a node, and `{allocation.place}` asks for {allocation.gpus} GPUs:"
        f" {allocation.gpus - count.value} of them have nothing to do.",
        place=count.place,
        also=(allocation.place, starts[0].place),
        evidence=Evidence(Level.RESOLVED, {"processes on a node": count.value, "GPUs of a node": allocation.gpus}),
        stake=Stake(AtStake.TIME, 0.0, 1 - count.value / allocation.gpus, "the share of GPUs that idle"),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Start {allocation.gpus} processes, with less accumulation for the same batch, or ask for {count.value} GPUs.",
            accuracy="With as many rows a step, none.",
        ),
    )


def _hidden(project: Project, configs: Mapping[str, ConfigFile]) -> Iterator[Said]:
    """Fewer GPUs are shown to the processes than there are of them."""
    for launch in project.launches:
        shown = launch.variables.get("CUDA_VISIBLE_DEVICES")
        count = processes_of_a_node(launch, configs)
        if shown is None or not shown.is_known or count is None:
            continue
        named = [part for part in str(shown.value).split(",") if part.strip()]
        if not named or not re.fullmatch(r"[\w,\s-]+", str(shown.value)) or count.value <= len(named):
            continue
        yield Finding(
            f"{count.value} processes are started on a node, and `CUDA_VISIBLE_DEVICES={shown.value}` shows them"
            f" {len(named)} GPU{'s' * (len(named) > 1)}: the others have none, and stop.",
            place=count.place,
            evidence=Evidence(Level.RESOLVED, {"processes on a node": count.value, "GPUs that are shown": len(named)}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(
                Risk.OPERATIONAL, f"Start {len(named)} processes, with more accumulation for the same batch."
            ),
            also=(shown.place,),
        )


def _asked_otherwise(allocation: Allocation, project: Project) -> bool:
    """Another file submits this one, with GPUs of its own choice."""
    name = allocation.place.file.rpartition("/")[2]
    return any(
        file != allocation.place.file and "sbatch" in line and name in line and ("--g" in line or "-G" in line)
        for file, text in project.texts.items()
        for line in text.splitlines()
    )


def _started(allocation: Allocation, project: Project) -> Iterator[Launch]:
    """Commands of the job file, and of the files and goals that it runs."""
    rows: dict[str, frozenset[int] | None] = {allocation.place.file: None}
    for file, goals in allocation.starts:
        text = project.texts.get(file, "")
        if file.lower().endswith("makefile"):
            rows[file] = rows_of_goals(text, goals) | (rows.get(file) or frozenset())
        else:
            rows[file] = None
    for launch in project.launches:
        if launch.file in rows:
            within = rows[launch.file]
            if within is None or launch.place.line in within:
                yield launch


def _finding(allocation: Allocation, count: Setting) -> Finding:
    gpus = allocation.gpus
    return Finding(
        f"{count.value} processes are started on a node, and `{allocation.place}` asks for {gpus} GPU{'s' * (gpus > 1)}: the"
        f" processes from the {gpus + 1}{'st' if gpus == 0 else 'nd' if gpus == 1 else 'rd' if gpus == 2 else 'th'} on have"
        " none, and stop.",
        place=count.place,
        also=(allocation.place,),
        evidence=Evidence(Level.RESOLVED, {"processes on a node": count.value, "GPUs of a node": gpus}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Start {gpus} processes, with more accumulation for the same batch, or ask for {count.value} GPUs.",
            accuracy="With as many rows a step, none.",
        ),
    )


RULE = Rule(
    code="DST005",
    name="more-processes-than-gpus",
    summary="More processes are started on a node than the job asks for GPUs, or GPUs or nodes of it are left idle.",
    group=Group.CORRECTNESS,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="`torchrun --nproc_per_node`, accelerate's `num_processes` or `deepspeed --num_gpus`, against `--gres=gpu:N`,"
        " `--gpus-per-node` or `--gpus` of the `#SBATCH` lines under which they run; and `--nodes` against what torchrun or"
        " accelerate are told of other machines (`--nnodes` and a rendezvous, `num_machines`); and Slurm's"
        " tasks of a node, each of which may be such a launcher.",
        why="Each process takes the GPU of its own number. Those that find none stop with an error, and the others after"
        " them, once the job has waited for its machines. A launcher that knows of no other node starts a run of its own on"
        " each under `srun`, and they write over one another's checkpoints; without `srun` all nodes but one idle.",
        detected="E1: the job file's lines, and the commands that it runs itself, through `make` or through other scripts of"
        " the project. Nothing is said where a file submits it with GPUs of its own choice.",
        proven='The run ends with "invalid device ordinal".',
        deliberate=("Processes that share GPUs, for tests with gloo.",),
        sources=("Slurm's manual of `sbatch`; PyTorch's `torchrun`; accelerate's `launch`",),
    ),
    bad=Example({"job.sbatch": _JOB.format(4), "sft.yaml": _SFT}, says="8 processes are started on a node"),
    good=Example({"job.sbatch": _JOB.format(8), "sft.yaml": _SFT}),
    also_bad=(
        Example(
            {"job.sbatch": _JOB.format(8).replace("nodes=1", "nodes=2"), "sft.yaml": _SFT}, says="asks for 2 nodes"
        ),
    ),
)
