"""What a job file of Slurm asks for, and what it starts through `make` or other scripts."""

import posixpath
from collections.abc import Iterator
from pathlib import Path

from dynotune.audit.facts.launch import Allocation
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.shell import Shell
from dynotune.audit.read.launchers.slurm import directives, gpus_of_a_node

_SHELLS = frozenset({"bash", "sh", "source", "."})


def read_allocation(path: Path, text: str, root: Path) -> Allocation | None:
    """The GPUs of a node that `#SBATCH` lines ask for; None where there are none, or they do not tell."""
    asked = directives(text)
    told = gpus_of_a_node(asked)
    if told is None:
        return None
    gpus, name = told
    file = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    return Allocation(Place(file, asked[name][1], key=name), gpus, tuple(_starts(file, text, root)))


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
