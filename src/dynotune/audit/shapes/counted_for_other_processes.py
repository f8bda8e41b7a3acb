"""A launcher works its accumulation out for another number of processes than it starts."""

import math
import re
from collections.abc import Iterator

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_COUNT = re.compile(
    r"^\s*(?:export\s+)?(\w{0,60}(?:GPUS|PROCESSES|WORLD_SIZE|NPROC\w{0,30}|NUM_DEVICES))=[\"']?(\d+)[\"']?\s*(?:#.*)?$",
    re.IGNORECASE,
)
_NODES = re.compile(
    r"^\s*(?:export\s+)?(\w{0,40}(?:NODES|MACHINES|HOSTS)\w{0,20})=[\"']?(\d{1,4})[\"']?\s*(?:#.*)?$", re.IGNORECASE
)
_SET = re.compile(r"^\s*(\w{1,80})=")


def counted_for_other_processes(launch: Launch, project: Project) -> Iterator[Said]:
    processes = processes_of(launch)
    if processes is None:
        return
    lines = project.texts.get(launch.file, "").split("\n")[: launch.place.line]
    worked = _worked(lines, command_of(launch, project))
    nodes = {one[1].lower(): int(one[2]) for line in lines if (one := _NODES.match(line)) is not None}
    for number, line in enumerate(lines, 1) if worked else ():
        found = _COUNT.match(line)
        if found is None or int(found[2]) == processes:
            continue
        where = worked.get(found[1].lower(), 0)
        by_nodes = math.prod(many for name, many in nodes.items() if worked.get(name, 0) == where)
        if where and int(found[2]) * by_nodes != processes:
            yield _of_other_processes(launch, processes, found[1], int(found[2]), number, where)
            return


def command_of(launch: Launch, project: Project) -> str:
    """The lines of the file that it stands in."""
    lines = project.texts.get(launch.file, "").split("\n")
    return "\n".join(lines[launch.place.line - 1 : launch.place.end_line or launch.place.line])


def is_accumulation(name: str, command: str) -> bool:
    """A variable of a shell, by its own name or by the flag that gets it."""
    if re.search(r"ACC|GAS\b", name, re.IGNORECASE):
        return True
    flag = rf"--[\w.-]*(?:acc|gas)[\w-]*[= ]+[\"']?\$\{{?{re.escape(name)}\b"
    return re.search(flag, command, re.IGNORECASE) is not None


def _worked(lines: list[str], command: str) -> dict[str, int]:
    """The first line of an accumulation that is worked out with each name; names in small letters."""
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        given = _SET.match(line)
        if given is not None and "$((" in line and is_accumulation(given[1], command):
            for name in re.findall(r"\w+", line.partition("$((")[2].lower()):
                found.setdefault(name, number)
    return found


def processes_of(launch: Launch) -> int | None:
    """Of all machines together."""
    if "accelerate" in launch.launcher:
        given = launch.launcher_flags.get("num_processes")
        return given.value if given is not None and type(given.value) is int else None
    if launch.launcher.endswith("deepspeed"):
        gpus = launch.launcher_flags.get("num_gpus")
        return gpus.value if gpus is not None and type(gpus.value) is int else None
    each, nodes = launch.launcher_flags.get("nproc_per_node"), launch.launcher_flags.get("nnodes")
    if "torchrun" not in launch.launcher or each is None or type(each.value) is not int:
        return None
    many = nodes.value if nodes is not None else 1
    return each.value * many if type(many) is int else None


def _of_other_processes(launch: Launch, processes: int, name: str, counted: int, number: int, where: int) -> Finding:
    flag = launch.launcher_flags.get("num_processes") or launch.launcher_flags.get("nproc_per_node")
    machines = launch.launcher_flags.get("num_machines")
    every = " (`--num_processes` counts those of all machines)" if machines is not None and machines.value != 1 else ""
    return Finding(
        f"The accumulation is worked out for `{name}={counted}`, and {processes} processes are started{every}: a step holds"
        f" {processes / counted:g} times the rows that were meant.",
        place=flag.place if flag is not None and flag.place.line else launch.place,
        evidence=Evidence(Level.RESOLVED, {name: counted, "processes": processes}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Start `${name}` processes, or count with what is started.",
            accuracy="Steps hold the rows that were meant.",
        ),
        also=(Place(launch.file, number), Place(launch.file, where)),
    )
