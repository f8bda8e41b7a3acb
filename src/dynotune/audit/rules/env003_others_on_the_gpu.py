"""ENV003: another process holds memory of a GPU."""

from collections.abc import Iterator

from dynotune.audit.facts.environment import Environment
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import NOWHERE
from dynotune.audit.rule import Group, Page, Rule, Subject

MUCH = 1 << 30
"""Bytes from which on it is said: desktops and monitors take some hundred MiB."""


def check(environment: Environment, project: Project) -> Iterator[Said]:
    others = (environment.machine.get("driver") or {}).get("other_processes") or ()
    held = [one["memory"] for one in others if one.get("memory")]
    gpus = environment.gpus
    taken = sum(held) or sum(int(gpu["memory"]) - int(gpu.get("free", gpu["memory"])) for gpu in gpus if others)
    if not others or taken < MUCH:
        return
    processes = ", ".join(str(one["pid"]) for one in others[:5])
    gib = taken / 2**30
    yield Finding(
        f"{len(others)} other process{'es' * (len(others) > 1)} ({processes}) hold{'s' * (len(others) == 1)}"
        f" {gib:.1f} GiB of the"
        " GPUs: less memory for training, and times that are not comparable.",
        place=NOWHERE,
        evidence=Evidence(Level.PROBED, {"processes": len(others), "GiB": round(gib, 1)}),
        stake=Stake(AtStake.MEMORY, gib, gib, "nvidia-smi"),
        remedy=Remedy(
            Risk.OPERATIONAL, "Wait for them, end what is left over, or take another GPU.", effort=Effort.MINUTES
        ),
    )


RULE = Rule(
    code="ENV003",
    name="others-on-the-gpu",
    summary="Another process holds memory of a GPU.",
    group=Group.ENVIRONMENT,
    subject=Subject.ENVIRONMENT,
    check=check,
    page=Page(
        what="Processes that hold a gigabyte or more of a GPU's memory while the audit runs.",
        why="They share its memory, clocks and power: runs end out of memory, and measurements lie.",
        detected="E2: `nvidia-smi`.",
        proven="`dynotune env`.",
        deliberate=("A server for evaluation beside the training.",),
        sources=("The project's notes on measuring: other processes on the GPU are watched in every block",),
    ),
)
