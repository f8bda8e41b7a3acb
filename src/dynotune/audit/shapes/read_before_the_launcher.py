"""`WORLD_SIZE` is read by the process that starts the launcher, or by a program that a job file runs before it."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_STARTED_BY = re.compile(
    r"""["'](?:torchrun|deepspeed)["']|accelerate["',\s]+launch\b|torch\.distributed\.(?:run|launch)\b|torchrun """
)
_STARTS_A_COMMAND = re.compile(r"subprocess\.\w+|os\.system|os\.exec\w+|\bPopen\(|\bcheck_call\(|\brun\(")
_COUNTED = frozenset({"WORLD_SIZE", "LOCAL_WORLD_SIZE"})


def read_before_the_launcher(script: Script, project: Project) -> Iterator[Said]:
    """In the process that starts the launcher, or in a program that a job file runs before it."""
    if "WORLD_SIZE" not in script.source or any(
        launch.script == script.file and launch.launcher for launch in project.launches
    ):
        return
    source = code(script)
    if re.search(
        r"environ\[['\"]WORLD_SIZE['\"]\]\s*=[^=]|setdefault\(['\"]WORLD_SIZE|['\"]WORLD_SIZE['\"]\s*:", source
    ):
        return  # it says itself how many
    started = list(_STARTED_BY.finditer(source)) if _STARTS_A_COMMAND.search(source) else []
    after = (
        Place(script.file, source[: started[-1].start()].count("\n") + 1)
        if started
        else _launched_after(script, project)
    )
    if after is None or any(loops(script)):
        return
    for call in script.calls:
        name = call.arguments.get("0") if call.name in ("os.environ.get", "os.getenv", "environ.get") else None
        if name is None or name.value not in _COUNTED:
            continue
        default = call.arguments.get("1") or call.arguments.get("default")
        taken = f"`{default.value}`" if default is not None else "nothing"
        yield Finding(
            f"`{name.value}` is read before the launcher ({after}) starts the processes that it counts: there is no such"
            f" variable here, and the default ({taken}) is taken whatever the number of GPUs.",
            place=call.place,
            evidence=Evidence(
                Level.TEXT, {"default": str(default.value) if default is not None else None, "launched": str(after)}
            ),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Take the number that the launcher is given, or compute it in the program that it starts.",
                accuracy="What is computed from it (accumulation, learning rate, shares of rows) changes.",
            ),
            also=(after,),
        )
        return


def _launched_after(script: Script, project: Project) -> Place | None:
    """The command with a launcher that a shell file has behind a plain `python` of this script."""
    name = re.escape(script.file)
    module = re.escape(script.file.removesuffix(".py").replace("/", "."))
    plain = re.compile(
        r"^(?!.*(?:torchrun|accelerate|deepspeed|srun|mpirun)).*\bpython[\d.]*\s+(?:-u\s+)?"
        rf"(?:(?:\S*/)?(?:\./)?{name}|-m\s+{module})(?=\s|$|\))"
    )
    for launch in project.launches:
        if not launch.launcher or launch.script == script.file:
            continue
        text = project.texts.get(launch.file, "")
        if re.search(r"(^|\s)(export\s+)?WORLD_SIZE=", text):
            continue
        above = text.split("\n")[: max(launch.place.line - 1, 0)]
        if any(plain.search(line.partition(" #")[0]) for line in above if not line.lstrip().startswith("#")):
            return Place(launch.file, launch.place.line)
    return None
