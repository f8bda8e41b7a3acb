"""A variable of the ranks is read with a default before the call that sets it."""

import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.group_of_processes import SPAWNS, is_loaded_late, room_of
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rank_variables import read_with_default, setters
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_LAUNCHERS = re.compile(r"torchrun|torch\.distributed\.(?:run|launch)|accelerate launch|\bdeepspeed\s+[-\w]")


def ranks_set_afterwards(script: Script, project: Project) -> Iterator[Said]:
    """Read with a default, at import or above the call of what first sets it (from Slurm's or MPI's variables)."""
    early = [(call, name) for call in script.calls if (name := read_with_default(call))]
    if not early:
        return
    near = connected(script, project)
    made = [(one, sets) for one in near for sets in setters(one)]
    names = {sets.function for _, sets in made}
    if not made or any(_runs_at_import(one, names) for one in near) or _is_launched(near, project):
        return
    spawns = any(one.name in SPAWNS for other in near for one in other.calls)
    for call, name in early:
        inside = room_of(call)
        calls = [
            one.place.line for one in script.calls if one.name.rpartition(".")[2] in names and room_of(one) == inside
        ]
        if inside.rpartition(".")[2] in names or (spawns and name == "WORLD_SIZE"):
            continue
        if (inside and not calls) or any(line < call.place.line for line in calls) or is_loaded_late(script, near):
            continue
        of, sets = made[0]
        again = [one.place for one, other in early if other != name]
        yield Finding(
            f"`{name}` is read {'above the call of' if inside else 'when the file is loaded, before'} `{sets.function}()`,"
            f" which sets it{f' (`{of.file}`)' if of is not script else ''}: the default,"
            f" {call.arguments['1'].value!r}, is what every process takes.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"default": call.arguments["1"].value, "set in": sets.function}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Read it in a function that is called behind, or ask `dist.get_rank()` and `dist.get_world_size()`.",
                accuracy="Ranks take their own shares, and one of them writes.",
                measure="Print it on every rank.",
            ),
            also=(place_of(of, sets.node), *again[:2]),
        )
        return


def _runs_at_import(script: Script, names: set[str]) -> bool:
    """One of these is called where a file is loaded, so that what is loaded behind it finds the variables."""
    return any(
        one.name.rpartition(".")[2] in names and not any(around.kind in ("function", "main") for around in one.around)
        for one in script.calls
    )


def _is_launched(near: Sequence[Script], project: Project) -> bool:
    """By what sets the variables for each process."""
    files = {one.file for one in near}
    launches = [launch for launch in project.launches if launch.script in files]
    if launches:
        return all(launch.launcher not in ("", "srun", "mpirun", "mpiexec") for launch in launches)
    texts = (*project.texts.values(), *project.documents.values())
    return any(_LAUNCHERS.search(text) for text in texts)
