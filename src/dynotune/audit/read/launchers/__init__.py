"""Shell scripts, job files and Makefiles: the commands in them that start something. Nothing is run."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path, PurePosixPath

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.setting import Setting
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.command import flags_of, named_configs, plain, take_apart
from dynotune.audit.read.launchers.makefile import recipes
from dynotune.audit.read.launchers.shell import Command, Shell, Word
from dynotune.audit.regular import leaves, start_of

__all__ = ["read_launches"]

_MAKE = frozenset({"makefile", "gnumakefile"})
_MOST_BYTES = 1 << 18
"""Of a file that is sourced."""


def read_launches(path: Path, text: str, root: Path, made: Set[str] = frozenset()) -> list[Launch]:
    """Every command of a file that starts a program of Python or a trainer, in order. made: files that are written on the
    way, which commands may name as well."""
    file = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    is_make = path.name.lower() in _MAKE or path.suffix.lower() == ".mk"
    shell = Shell(file, *recipes(text)) if is_make else Shell(file, text)
    shell.state.sourced = lambda name, folder: _sourced(_Folders(root, posixpath.dirname(file), folder), name)
    return [
        replace(launch, sourced={name: Setting(name, plain(word.text), word.place) for name, word in taken.items()})
        for command in shell.commands()
        for taken in (dict(shell.state.taken),)
        for launch in _launch(command, file, root, made)
    ]


def _launch(command: Command, file: str, root: Path, made: Set[str]) -> Iterator[Launch]:
    started = take_apart(command)
    if started is None:
        return
    rest = started.rest
    marks = [number for number, word in enumerate(rest) if word.text == "--"]
    if marks and started.program.startswith("axolotl "):
        # `axolotl train run.yml --launcher torchrun -- --nproc_per_node 8`: the rest is the launcher's.
        started.launcher_flags.update(flags_of(rest[marks[0] + 1 :])[0])
        rest = rest[: marks[0]]
    ends = marks[0] if marks and started.script else len(rest)
    flags, positional = flags_of(rest[:ends])
    positional += rest[ends + 1 :]  # behind `--` nothing is a flag
    own = started.program.split(" ")[0] in ("trl", "axolotl", "llamafactory-cli", "dynotune")
    for word in positional if own else ():
        name, equals, value = word.text.partition("=")
        if equals and name.isidentifier():  # OmegaConf's overrides
            flags[name] = Setting(name, plain(value), word.place)
    here = _Folders(root, posixpath.dirname(file), command.folder, made)
    script = here.find(started.script) if started.script else here.module(started.module)
    configs = [found for name in named_configs(word.text for word in command.words) if (found := here.find(name))]
    yield Launch(
        file,
        Place(file, command.place.line, command.place.column, command.place.end_line, command.place.end_column),
        tuple(word.text for word in command.words),
        started.program,
        script,
        tuple(dict.fromkeys(configs)),
        flags,
        " ".join(started.launchers),
        started.launcher_flags,
        {
            name: Setting(name, plain(word.text), word.place, given_value=word.text)
            for name, word in started.variables.items()
        },
        perhaps=_perhaps(command, rest[:ends], flags),
    )


def _perhaps(command: Command, rest: Sequence[Word], flags: Mapping[str, Setting]) -> dict[str, Setting]:
    """Flags in variables among the program's words that branches have filled, beside those that it gets for sure."""
    names = {word.text[2:-1] for word in rest if word.text.startswith("${")} & command.perhaps.keys()
    every = {key: one for name in sorted(names) for key, one in flags_of(list(command.perhaps[name]))[0].items()}
    return {key: one for key, one in every.items() if key not in flags}


def _sourced(here: "_Folders", name: str) -> tuple[str, str] | None:
    """A file of assignments that a script takes in: its place's name and its text. None: the project has none."""
    found = here.find(name)
    path = here.root / found
    try:
        if not found or leaves(path, here.root):
            return None
        return found, start_of(path, _MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


class _Folders:
    """Where a command's paths may start: where a `cd` went, the project, the launcher's own folder."""

    def __init__(self, root: Path, own: str, went: str, made: Set[str] = frozenset()) -> None:
        self.root, self.own, self.made = root, own, made
        went = went.replace("${HERE}", own or ".")
        self.starts = [went, posixpath.join(own, went), "", own] if went and "${" not in went else ["", own]

    def module(self, name: str) -> str:
        """The file of `package.module`, under a folder where commands may start or in `src`; empty: not the project's."""
        dotted = name.replace(".", "/")
        if not dotted or not re.fullmatch(r"[\w/]+", dotted):
            return ""
        tried = (f"{start}{dotted}{end}" for start in ("", "src/") for end in (".py", "/__main__.py"))
        return next((found for one in tried if (found := self.find(one))), "")

    def find(self, name: str) -> str:
        """A file of the project, relative to it; empty where there is none."""
        name = name.replace("${HERE}/", f"{self.own}/" if self.own else "")
        if "${" in name:
            # `${SOMEWHERE}/train.py`: the rest of the path, where the project has it.
            name = name.rpartition("}")[2].lstrip("/")
        if not name or PurePosixPath(name).is_absolute():
            return ""
        for start in self.starts:
            path = posixpath.normpath(posixpath.join(start, name))
            if not path.startswith("..") and (path in self.made or (self.root / path).is_file()):
                return path
        return ""
