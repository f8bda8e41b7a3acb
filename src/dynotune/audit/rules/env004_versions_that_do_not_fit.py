"""ENV004: installed versions that a training package says it does not work with."""

from collections.abc import Iterator

from dynotune.audit.facts.environment import Environment
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import NOWHERE
from dynotune.audit.rule import Group, Page, Rule, Subject


def check(environment: Environment, project: Project) -> Iterator[Said]:
    for one in environment.machine.get("conflicts") or ():
        yield Finding(
            f"{one['package']} {one['version']} wants {one['wants']}, and {one['there']} is installed.",
            place=NOWHERE,
            evidence=Evidence(Level.RESOLVED, dict(one)),
            stake=Stake(AtStake.LOST),
            remedy=Remedy(
                Risk.OPERATIONAL,
                f"Install a version within {one['wants']}, or another one of {one['package']}.",
                effort=Effort.MINUTES,
            ),
        )


RULE = Rule(
    code="ENV004",
    name="versions-that-do-not-fit",
    summary="Installed versions contradict what a training package requires.",
    group=Group.ENVIRONMENT,
    subject=Subject.ENVIRONMENT,
    check=check,
    page=Page(
        what="Packages state which versions of others they work with. Installing one after the other can leave a pair that"
        " contradicts that.",
        why="Trainers replace functions of other libraries: with another version the replacement fails, or does nothing and"
        " says nothing. Unsloth 2026.10 needs trl up to 1.15, LLaMA-Factory 0.9.5 transformers up to 5.6.",
        detected="E1: the metadata of the installed training packages against the installed versions.",
        proven="`pip check`.",
        deliberate=("The pair was tried, and the limit is too narrow.",),
        sources=("Metadata of the packages; Unsloth issues 3081 and 4190, LLaMA-Factory issues 9583 and 4120",),
    ),
)
