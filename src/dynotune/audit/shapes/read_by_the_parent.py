"""`WORLD_SIZE` is read where a file is loaded that starts its workers itself."""

from collections.abc import Iterator

from dynotune.audit.facts.group_of_processes import SPAWNS
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import reached
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake


def read_by_the_parent(script: Script, project: Project) -> Iterator[Said]:
    """At the top of the file that starts its workers itself, or of one that it imports."""
    spawns = [call for call in script.calls if call.name in SPAWNS]
    if not spawns:
        return
    for one in reached(script, project):
        for call in one.calls:
            name = call.arguments.get("0") if call.name in ("os.environ.get", "os.getenv") else None
            if name is None or name.value != "WORLD_SIZE" or "1" not in call.arguments:
                continue
            if any(around.kind in ("function", "main") for around in call.around):
                continue  # it may run in the workers
            where = "this file" if one is script else f"`{script.file}`, which loads it,"
            yield Finding(
                f"`WORLD_SIZE` is read when the file is loaded, and {where} starts its workers itself"
                f" (`{spawns[0].name.rpartition('.')[2]}`): there is no such variable yet, and the default is taken.",
                place=call.place,
                evidence=Evidence(Level.TEXT, {"default": call.arguments["1"].value}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    "Take the number that is given to the call that starts the workers, or ask `dist.get_world_size()`"
                    " in them.",
                    accuracy="What is computed from it (accumulation, learning rate, shares of rows) changes.",
                ),
                also=(spawns[0].place,),
            )
            return
