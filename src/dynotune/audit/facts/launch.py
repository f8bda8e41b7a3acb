"""A command in a shell script, a Makefile or a job file that starts training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dynotune.audit.facts.setting import Setting
from dynotune.audit.place import Place

SHELL = frozenset({".sh", ".bash", ".zsh", ".slurm", ".sbatch", ".job", ".pbs"})
"""Suffixes of files of shell commands."""


@dataclass(frozen=True, slots=True)
class Launch:
    file: str
    place: Place
    words: Sequence[str]
    """The command, variables filled in where they are known; `${NAME}` stays where they are not."""

    program: str
    """What is started behind launchers and their flags: a script's path, `-m module`, `trl sft`, `axolotl train`, ..."""

    script: str = ""
    """The Python file, relative to the project, where there is one and it exists."""

    configs: tuple[str, ...] = ()
    """Configuration files that the command names, relative to the project."""

    flags: Mapping[str, Setting] = field(default_factory=dict)
    """Of the program: `--learning_rate 1e-5` by name without dashes."""

    launcher: str = ""
    """`torchrun`, `accelerate launch`, `deepspeed`, `srun`, ...; empty: none."""

    launcher_flags: Mapping[str, Setting] = field(default_factory=dict)
    variables: Mapping[str, Setting] = field(default_factory=dict)
    """Of the environment, set in front of the command or exported before it."""

    sourced: Mapping[str, Setting] = field(default_factory=dict)
    """Variables of the shell that files of the project gave which it sources."""

    perhaps: Mapping[str, Setting] = field(default_factory=dict)
    """Flags of the program that a branch of the shell adds, or does not."""

    @property
    def behind(self) -> Sequence[str]:
        """The words that the program gets: those behind its name, or behind the module's (`python -m src.train lr=1`)."""
        last = self.program.split(" ")[-1]
        names = (self.program, last, f".{last}")
        for number, word in enumerate(self.words):
            if word in names or (len(names[-1]) > 1 and word.endswith(names[-1])):
                return self.words[number + 1 :]
        return ()


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a job file asks its scheduler for."""

    place: Place
    """The line that says how many GPUs."""

    gpus: int
    """Of a node."""

    starts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Other files that it runs, relative to the project: scripts, and Makefiles with the goals."""
