"""Slurm starts several tasks on a node, and each of them is a launcher that starts a process for every GPU."""

from collections.abc import Mapping
from dataclasses import replace

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.launch import Allocation, Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.setting import Setting
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.distribution import processes_of_a_node
from dynotune.audit.read.launchers.slurm import count, directives, is_run_by_srun

_OF_SRUN = ("ntasks", "n", "ntasks_per_node")


def launched_by_each_task(
    launch: Launch, allocation: Allocation, project: Project, configs: Mapping[str, ConfigFile]
) -> Finding | None:
    """`#SBATCH --ntasks-per-node=8` over `srun torchrun --nproc_per_node=8`; None: one task a node, or one process each."""
    text = project.texts.get(allocation.place.file, "")
    asked = directives(text)
    by_srun = "srun" in launch.launcher.split() or is_run_by_srun(launch.file, text)
    each = processes_of_a_node(launch, configs) or _one_for_each_gpu(launch, allocation.gpus)
    if not by_srun or each is None or each.value < 2 or any(name in launch.launcher_flags for name in _OF_SRUN):
        return None
    nodes = count(asked["--nodes"][0]) if "--nodes" in asked else 1
    name = next((one for one in ("--ntasks-per-node", "--ntasks") if one in asked), "")
    told = count(asked[name][0]) if name else None
    if not told or not nodes or (name == "--ntasks" and told % nodes):
        return None
    tasks = told if name == "--ntasks-per-node" else told // nodes
    if tasks < 2 or tasks * each.value <= allocation.gpus:
        return None
    return Finding(
        f"`{name}={asked[name][0]}` has `srun` start {tasks} tasks on a node, and each of them is a launcher of {each.value}"
        f" processes: {tasks * each.value} processes on {allocation.gpus} GPU{'s' * (allocation.gpus > 1)}, whose launchers"
        " take the same port.",
        place=Place(allocation.place.file, asked[name][1]),
        also=(each.place, launch.place),
        evidence=Evidence(
            Level.RESOLVED, {"tasks of a node": tasks, "processes of a task": each.value, "GPUs": allocation.gpus}
        ),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Ask for one task a node (`#SBATCH --ntasks-per-node=1`): the launcher starts the {each.value} processes.",
        ),
    )


def _one_for_each_gpu(launch: Launch, gpus: int) -> Setting | None:
    """`torchrun --nproc_per_node=gpu`."""
    flag = launch.launcher_flags.get("nproc_per_node")
    return replace(flag, value=gpus) if flag is not None and flag.value in ("gpu", "auto") else None
