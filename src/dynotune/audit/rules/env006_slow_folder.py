"""ENV006: the working folder lies on a file system that is slow for training."""

from collections.abc import Iterator

from dynotune.audit.facts.environment import Environment
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import NOWHERE
from dynotune.audit.rule import Group, Page, Rule, Subject


def check(environment: Environment, project: Project) -> Iterator[Said]:
    slow = environment.machine.get("working_folder")
    if not slow or not environment.wsl:
        return  # a network file system is where data lies on a cluster, and mostly fast enough
    yield Finding(
        f"The working folder lies on {slow}: every file that is opened under WSL goes through the other system.",
        place=NOWHERE,
        evidence=Evidence(Level.PROBED, {"file system": slow, "WSL": True}),
        stake=Stake(AtStake.TIME, 0.0, None),
        remedy=Remedy(
            Risk.OPERATIONAL,
            "Keep data, caches and environments in the Linux file system (below `~`).",
            effort=Effort.MINUTES,
        ),
    )


RULE = Rule(
    code="ENV006",
    name="slow-folder",
    summary="The working folder lies on a Windows drive under WSL.",
    group=Group.ENVIRONMENT,
    subject=Subject.ENVIRONMENT,
    check=check,
    page=Page(
        what="Under WSL, drives of Windows (`/mnt/c`) are reached through a protocol between the two systems.",
        why="Opening many files, memory-mapped tables and imports of large packages take many times as long.",
        detected="E2: the kind of mount that the working folder lies on.",
        proven="`time python -c 'import transformers'` here and below `~`.",
        deliberate=("The data is read once, into memory.",),
        sources=("Microsoft's documentation of working across Windows and Linux file systems",),
    ),
)
