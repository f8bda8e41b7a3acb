"""A job file asks for several nodes, and its launcher is told of one: each trains by itself, or all but one are idle."""

import re
from collections.abc import Mapping
from typing import Any

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.slurm import count, directives, is_run_by_srun

_JOINS = frozenset({"nnodes", "rdzv_endpoint", "rdzv_backend", "node_rank", "master_addr"})
"""Flags of torchrun by which it is told of other nodes."""

_OF_ACCELERATE = frozenset({"num_machines", "machine_rank", "main_process_ip", "deepspeed_hostfile"})
_BY_HAND = re.compile(
    r"\b(?:pdsh|pssh|clush|ssh|mpirun|mpiexec)\b|\bfor\s+\w+\s+in\b[^\n]*(?:node|host)", re.IGNORECASE
)
_OF_THE_ENVIRONMENT = frozenset({"PET_NNODES", "PET_RDZV_ENDPOINT"})


def nodes_that_do_not_join(
    launch: Launch, job_file: str, project: Project, configs: Mapping[str, ConfigFile]
) -> Finding | None:
    """Under the `#SBATCH` lines of a file; None: it asks for one node, or its launcher knows of the others."""
    text = project.texts.get(job_file, "")
    asked = directives(text).get("--nodes")
    nodes = count(asked[0]) if asked is not None else None
    if asked is None or not nodes or nodes < 2 or not _alone(launch, configs):
        return None
    if _BY_HAND.search(text) or _BY_HAND.search(project.texts.get(launch.file, "")):
        return None
    by_srun = re.search(r"\bsrun\b", launch.launcher) is not None or is_run_by_srun(launch.file, text)
    flags: Mapping[str, Any] = {name: one.value for name, one in launch.launcher_flags.items()}
    if by_srun and flags.get("nodes", flags.get("N", nodes)) != nodes:
        return None
    what = "torchrun" if "torchrun" in launch.launcher else "accelerate launch"
    then = (
        "each starts a run of its own, all with the same output folder"
        if by_srun
        else "the command runs on the first, and the others have nothing to do"
    )
    add = (
        "--nnodes=$SLURM_NNODES --rdzv_backend=c10d --rdzv_id=$SLURM_JOB_ID --rdzv_endpoint=$HEAD:29500"
        if what == "torchrun"
        else "--num_machines, --machine_rank (each task's own `SLURM_NODEID`), --main_process_ip"
    )
    return Finding(
        f"`{job_file}` asks for {nodes} nodes, and `{what}` is told of none but its own: {then}.",
        place=launch.place,
        also=(Place(job_file, asked[1]),),
        evidence=Evidence(Level.TEXT, {"nodes": nodes, "launcher": launch.launcher, "srun": by_srun}),
        stake=Stake(AtStake.LOST if by_srun else AtStake.TIME),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Start it by `srun`, one task a node, with {add}; or ask for one node.",
            accuracy="A step then holds as many times the rows.",
        ),
    )


def _alone(launch: Launch, configs: Mapping[str, ConfigFile]) -> bool:
    """Its launcher, torchrun or accelerate's, starts processes on one machine."""
    flags = launch.launcher_flags
    if "torchrun" in launch.launcher:
        one = "nnodes" in flags and flags["nnodes"].value == 1
        return (one or not _JOINS & set(flags)) and not _OF_THE_ENVIRONMENT & set(launch.variables)
    if "accelerate launch" not in launch.launcher:
        return False
    files = [configs[name] for name in launch.configs if name in configs and configs[name].kind == "accelerate"]
    machines = [file.values.get("num_machines", 1) for file in files]
    return bool(files or flags) and not _OF_ACCELERATE & set(flags) and all(one == 1 for one in machines)
