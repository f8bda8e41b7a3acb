"""`dynotune bench -- A :: B` and `dynotune bench --rev A --rev B -- COMMAND`: from words to a result."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from rich.console import Console

from dynotune.bench.asking.how import How
from dynotune.bench.asking.schedule import Rules, unit_of
from dynotune.bench.command import commit_here, fresh_folder, keep_logs, machine_and_packages
from dynotune.bench.foreign.conclude import conclude
from dynotune.bench.foreign.measure import Asked, Command, Measured, Say, in_a_line, measure
from dynotune.bench.foreign.revisions import checked_out
from dynotune.bench.judging.expect import parse
from dynotune.bench.keeping.so_far import SoFar
from dynotune.bench.workers import device
from dynotune.errors import ConfigError
from dynotune.results.result import Result
from dynotune.say import sayer

BETWEEN = "::"
"""A word of its own between two commands."""

PAIRS = 6
"""Of whole processes. More take long, and each tells more than a short block."""

MOST = 8
"""Commands in one bench: each is run at least seven times."""

SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
"""Programs that take a script behind `-c`."""

NAME = 28
"""Characters up to which a command is its own name."""


@dataclass(frozen=True, slots=True)
class Options(How):
    """What was asked, as it was typed."""

    words: Sequence[str]
    """Behind `--`."""

    revisions: Sequence[str] = ()
    setup: str | None = None
    other_work: bool = False
    steps: int | None = None
    """That are counted from outside; None: commands report."""


def bench(options: Options, console: Console) -> tuple[Result, Path]:
    """Run it. Returns the result and the folder for its files: `options.out`, or a new one under `benches/`.

    Raises `ConfigError` before anything runs, `ArmFailedError` where a command cannot be measured.
    """
    say = sayer(console)
    targets = parse(options.expect) if options.expect else ()
    commands = commands_of(options.words)
    if options.revisions and len(commands) > 1:
        raise ConfigError("`--rev` measures one command at two commits: give one behind `--`, without `::`.")
    if not options.revisions and len(commands) < 2:
        raise ConfigError("one command is nothing to compare: `dynotune bench -- python a.py :: python b.py`.")
    if options.steps is not None and options.steps < 1:
        raise ConfigError(f"{options.steps} steps of a command measure nothing: give `--steps` 1 or more.")
    pairs = PAIRS if options.pairs is None else options.pairs
    rules = Rules(
        pairs=pairs,
        most_pairs=max(pairs, PAIRS) if options.most_pairs is None else options.most_pairs,
        resolution=options.resolution,
        budget_seconds=options.budget,
    )
    out = options.out or fresh_folder(*(options.revisions or [in_a_line(one) for one in commands]))
    with tempfile.TemporaryDirectory(prefix="dynotune-bench-") as temporary:
        work = Path(temporary)
        try:
            with _arms(commands, options, work, say) as (arms, notes):
                there = device.ask()
                asked = Asked(
                    kind="revisions" if options.revisions else "foreign",
                    commands=arms,
                    rules=replace(rules, unit=unit_of(gpu=there["type"] != "cpu")),
                    seed=options.seed,
                    out=out,
                    command=options.command,
                    other_work=options.other_work,
                    steps=options.steps,
                )
                commit = str(arms[-1].facts["commit"])[:12] if options.revisions else commit_here()

                def result(found: Measured, *more: str) -> Result:
                    machine = machine_and_packages(found.device)
                    return conclude(found, targets, machine=machine, commit=commit, said=(*more, *notes))

                with SoFar(result, out, say) as so_far:
                    found = measure(asked, there, work, say, so_far)
        finally:
            keep_logs(work, out)
    return result(found), out


def commands_of(words: Sequence[str]) -> list[tuple[str, ...]]:
    """The commands between `::`. Raises `ConfigError` where one has no words."""
    found: list[list[str]] = [[]]
    for word in words:
        if word == BETWEEN:
            found.append([])
        else:
            found[-1].append(word)
    if len(found) > MOST:
        raise ConfigError(f"{len(found)} commands are too many for one bench: give at most {MOST}.")
    if not all(found):
        raise ConfigError("a command behind `--` has no words: write `dynotune bench -- python a.py :: python b.py`.")
    return [tuple(one) for one in found]


def names_of(commands: Sequence[Sequence[str]]) -> list[str]:
    """Of each command: itself where all are short, else a letter and the words that are not in all of them."""
    whole = [in_a_line(one) for one in commands]
    if max(map(len, whole)) > NAME or len(set(whole)) < len(set(map(tuple, commands))):
        words = [_words_of(one) for one in commands]
        common = set(words[0]).intersection(*words[1:])
        own = [_own([word for word in one if word not in common]) for one in words]
        return [f"{chr(ord('A') + i)}: {words}"[:NAME].strip(": ") for i, words in enumerate(own)]
    return [name + " again" * whole[:i].count(name) for i, name in enumerate(whole)]


def _words_of(command: Sequence[str]) -> list[str]:
    """A script that a shell is given is one word, of which a name would show the beginning: what differs is behind it."""
    if len(command) >= 3 and PurePath(command[0]).name in SHELLS and command[-2].startswith("-") and "c" in command[-2]:
        return [*command[:-1], *command[-1].split()]
    return [*command]


def _own(words: Sequence[str]) -> str:
    """Without what surrounds them where they stand in a script: it would hide them."""
    return in_a_line(words).replace("'", "").replace("\\", "").replace('"', "").strip(" ,;{}()")


@contextmanager
def _arms(
    commands: Sequence[tuple[str, ...]], options: Options, work: Path, say: Say
) -> Iterator[tuple[tuple[Command, ...], list[str]]]:
    """The arms, and what is to be said of them."""
    if options.revisions:
        with checked_out(options.revisions, commands[0], options.setup, work, say) as found:
            yield found
        return
    here = Path.cwd()
    yield (
        tuple(
            Command(name, words, here, facts={"command": words})
            for name, words in zip(names_of(commands), commands, strict=True)
        ),
        [],
    )
