"""A launcher's file calculates with the number of ranks before its command has made any."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_IN_SHELL = re.compile(
    r"(?:\$\(\([^\n]{0,200}?\$?\{?|\bexpr\s[^\n)`]{0,100}\$\{?|\blet\s[^\n;]{0,100}[/*]\s?\$?\{?"
    r"|\$\(echo\s[^\n]{0,100}?\$\{?(?=\w+\}?[^\n]{0,60}\|\s?bc)|\$\(python3? -c [^\n]{0,200}?environ(?:\.get\()?\[?[\"'])"
    r"\b(WORLD_SIZE|LOCAL_WORLD_SIZE)\b"
)
"""Arithmetic of the shell's own, by `expr`, `let` or `bc`, or by a line of Python."""

_START_THEM = ("axolotl ", "llamafactory-cli")
"""Programs that start the processes themselves."""


def makes_ranks(launch: Launch) -> bool:
    return bool(launch.launcher) or launch.program.startswith(_START_THEM)


def ranks_in_shell(file: str, project: Project) -> Iterator[Said]:
    """Arithmetic with the number of ranks, in the file whose command is yet to make them."""
    text = project.texts.get(file, "")
    first = min(launch.place.line for launch in project.launches if launch.file == file and makes_ranks(launch))
    if re.search(r"(^|\s)(export\s+)?(LOCAL_)?WORLD_SIZE=", text):
        return
    if "#SBATCH" not in text and re.search(r"^\s*srun\b|mpirun", text, re.MULTILINE):
        return  # it may be one that a launcher runs; the job file itself is not
    for number, line in enumerate(text.split("\n")[: max(first - 1, 0)], 1):
        found = _IN_SHELL.search(line.partition(" #")[0])
        if found is None or line.lstrip().startswith("#"):
            continue
        yield Finding(
            f"`{found[1]}` is read before the launcher on line {first} starts the processes that it counts: it is"
            f" not set, or"
            " its default is taken, whatever the number of GPUs.",
            place=Place(file, number),
            evidence=Evidence(Level.TEXT, {"read": number, "launched": first}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Take the number that the launcher is given (`--nproc_per_node`, times the nodes).",
                accuracy="What is computed from it (accumulation, learning rate, shares of rows) changes.",
            ),
            also=(Place(file, first),),
        )
        return
