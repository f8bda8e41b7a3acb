"""ENV001: a package that is installed does not work here."""

from collections.abc import Iterator

from dynotune.audit.facts.environment import Environment
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import NOWHERE
from dynotune.audit.rule import Group, Page, Rule, Subject

NEEDED = frozenset({"torch", "transformers", "trl", "peft", "accelerate", "datasets"})
"""Without which nothing trains; others cost speed, or a way of training."""


def check(environment: Environment, project: Project) -> Iterator[Said]:
    failure = environment.machine.get("failure")
    if failure:
        yield Finding(
            f"The machine could not be looked at: {failure}.",
            place=NOWHERE,
            evidence=Evidence(Level.PROBED, {"error": failure}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(Risk.OPERATIONAL, "Mend the installation: `python -c 'import torch'` shows it."),
        )
    for package in environment.packages.values():
        if package.works is not False or package.version is None:
            continue
        needed = package.name in NEEDED
        yield Finding(
            f"{package.name} {package.version} is installed and does not work: {package.why}.",
            place=NOWHERE,
            evidence=Evidence(
                Level.PROBED, {"package": package.name, "version": package.version, "error": package.why}
            ),
            stake=Stake(AtStake.STOPS if needed else AtStake.TIME),
            remedy=Remedy(
                Risk.OPERATIONAL,
                f"Install a build of {package.name} for this PyTorch, CUDA and GPU, or take it out.",
                effort=Effort.MINUTES,
                measure="dynotune env --accelerators",
            ),
        )


RULE = Rule(
    code="ENV001",
    name="does-not-work",
    summary="An installed package does not work on this machine.",
    group=Group.ENVIRONMENT,
    subject=Subject.ENVIRONMENT,
    check=check,
    page=Page(
        what="Each package is imported, and each accelerator run once, in a process of its own.",
        why="Libraries ask whether a package is there, not whether it works, and then fail late or fall back without"
        " a word.",
        detected="E2: the error of the trial, which stands in the finding. What was not tried is not judged.",
        proven="`dynotune env --accelerators`.",
        deliberate=("The package is for another machine that shares the environment.",),
        sources=("transformers issue 47926: importable is not `runs on this GPU`",),
    ),
)
