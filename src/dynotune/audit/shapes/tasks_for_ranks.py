"""A program takes Slurm's number of tasks for that of its processes, where each task starts several."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.slurm import directives

_TASKS = re.compile(r"[\"'](SLURM_NTASKS|SLURM_NPROCS|SLURM_STEP_NUM_TASKS)[\"']")


def tasks_for_ranks(script: Script, project: Project) -> Iterator[Said]:
    """Slurm's number of tasks, where each task is a launcher that starts several processes."""
    if "SLURM_" not in script.source:
        return
    files = {one.file for one in connected(script, project)}
    for launch in project.launches:
        each = launch.launcher_flags.get("nproc_per_node") or launch.launcher_flags.get("num_processes")
        if launch.script not in files or each is None or each.value == 1:
            continue
        asked = directives(project.texts.get(launch.file, ""))
        tasks = {name: asked[name] for name in ("--ntasks", "-n", "--ntasks-per-node") if name in asked}
        if not asked or any(value != "1" for value, _ in tasks.values()):
            continue
        for number, line in enumerate(code(script).split("\n"), 1):
            if found := _TASKS.search(line):
                place = next(iter(tasks.values()))[1] if tasks else launch.place.line
                yield Finding(
                    f"`{found[1]}` counts what Slurm starts, one task a node here, and in each of them"
                    f" `{launch.launcher}` starts the processes: it is not their number.",
                    place=Place(script.file, number, 1, number, len(line) + 1),
                    evidence=Evidence(Level.RESOLVED, {"variable": found[1], "processes of a task": str(each.value)}),
                    stake=Stake(AtStake.RESULT),
                    remedy=Remedy(
                        Risk.BEHAVIOURAL,
                        "Read `WORLD_SIZE`, which the launcher sets in each process.",
                        accuracy="What is computed from it (accumulation, learning rate, shares of rows) changes.",
                    ),
                    also=(Place(launch.file, place),),
                )
                return
