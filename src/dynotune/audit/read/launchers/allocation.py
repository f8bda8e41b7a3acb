"""What a job file of Slurm asks for, and what it starts through `make` or other scripts."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from dynotune.audit.facts.launch import Allocation
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.shell import Shell

_DIRECTIVE = re.compile(r"^#SBATCH\s+(--[a-z-]+|-[A-Za-z])(?:\s*=\s*|\s+|(?<=-[A-Za-z]))(\S+)")
_COUNT = re.compile(r"(?:[A-Za-z][\w.-]*:)?(\d+)(?:\(.*\))?")
_SHORT = {"-N": "--nodes", "-G": "--gpus"}
_SHELLS = frozenset({"bash", "sh", "source", "."})


def read_allocation(path: Path, text: str, root: Path) -> Allocation | None:
    """The GPUs of a node that `#SBATCH` lines ask for; None where there are none, or they do not tell."""
    asked: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if found := _DIRECTIVE.match(line):
            asked[_SHORT.get(found[1], found[1])] = found[2], number
    told = _gpus({name: value for name, (value, _) in asked.items()})
    if told is None:
        return None
    gpus, name = told
    file = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    return Allocation(Place(file, asked[name][1], key=name), gpus, tuple(_starts(file, text, root)))


def _gpus(asked: dict[str, str]) -> tuple[int, str] | None:
    nodes = _count(asked.get("--nodes", "1"))
    if "--gpus-per-node" in asked:
        each = _count(asked["--gpus-per-node"])
        return (each, "--gpus-per-node") if each else None
    if "--gres" in asked:
        kinds = [kind.partition(":")[2] for kind in asked["--gres"].split(",") if kind.partition(":")[0] == "gpu"]
        each = _count(kinds[0] or "1") if len(kinds) == 1 else None
        return (each, "--gres") if each else None
    if "--gpus" in asked:
        every = _count(asked["--gpus"])
        return (every // nodes, "--gpus") if every and nodes and every % nodes == 0 else None
    return None


def _count(text: str) -> int | None:
    found = _COUNT.fullmatch(text)
    return int(found[1]) if found is not None and len(found[1]) < 6 else None


def _starts(file: str, text: str, root: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Other files that its commands run, with the goals for `make`."""
    for command in Shell(file, text).commands():
        words = [word.text for word in command.words]
        while words and (posixpath.basename(words[0]) in ("srun", "exec", "time", "nohup") or words[0].startswith("-")):
            words = words[1:]
        if not words:
            continue
        name, rest = posixpath.basename(words[0]), words[1:]
        if name == "make":
            goals = tuple(word for word in rest if not word.startswith("-") and "=" not in word and "${" not in word)
            yield from ((one, goals) for one in ("Makefile", "makefile", "GNUmakefile") if (root / one).is_file())
            continue
        script = next((word for word in rest if not word.startswith("-")), "") if name in _SHELLS else words[0]
        started = posixpath.normpath(script)
        if script and "${" not in script and not started.startswith((".", "/")) and (root / started).is_file():
            yield started, ()
