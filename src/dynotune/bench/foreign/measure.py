"""Runs commands against each other: one run of each first, then rounds in which every block is a whole process."""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynotune.bench.asking.asked import Kind, Pairing
from dynotune.bench.asking.schedule import Round, Rules
from dynotune.bench.foreign.counting import Counting, counts_padding, usual_step
from dynotune.bench.foreign.process import run
from dynotune.bench.foreign.protocol import REPORT, VARIABLE, Told, report_of
from dynotune.bench.running.budget import spent_by
from dynotune.bench.running.guard import Guard
from dynotune.bench.running.rounds import noted, play, reason
from dynotune.bench.running.tally import Tally
from dynotune.bench.workers.hand import ArmFailedError
from dynotune.config.secrets import masked, without_secret_words
from dynotune.errors import DataError
from dynotune.results.result import Block

Say = Callable[[str], None]

FIRST_RUNS = "the first runs, which do not count,"


@dataclass(frozen=True, slots=True)
class Command:
    """An arm: a command as it is run."""

    name: str
    words: tuple[str, ...]
    folder: Path
    """In which it runs."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables besides those of this process."""

    facts: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """What tells it from the others, for the result: the command, or the commit."""


def in_a_line(words: Sequence[str]) -> str:
    """A command for others to read: without secrets, and of absolute paths the last part, as in every result."""
    shown = without_secret_words(words)
    short = [word.rstrip("/").rpartition("/")[2] if word.startswith(("/", "~")) else word for word in shown]
    return masked(shlex.join(short))


@dataclass(frozen=True, slots=True)
class Asked:
    """One bench of commands. The first is the baseline."""

    kind: Kind
    commands: tuple[Command, ...]
    rules: Rules
    seed: int
    out: Path
    """Folder of its files."""

    command: str
    other_work: bool = False
    """Whether arms may count other numbers of tokens."""

    steps: int | None = None
    """That are counted from outside, of every run; None: commands report."""

    @property
    def pairings(self) -> tuple[Pairing, ...]:
        first, *others = self.commands
        return tuple(Pairing(one.name, first.name, one.name, "whole") for one in others)


@dataclass(slots=True, kw_only=True)
class Measured(Tally):
    """What was seen, before anything is concluded."""

    asked: Asked
    device: dict[str, Any]
    """As `workers.device` tells it."""

    first: dict[str, tuple[Told, float]] = field(default_factory=dict)
    """By arm, what the run before the rounds reported, and the wall seconds that it took."""

    padding: dict[str, str] = field(default_factory=dict)
    """By arm, what shows that its report counts padding, as the end of a sentence; empty where it does not."""

    unchecked: dict[str, str] = field(default_factory=dict)
    """By arm, why that is not known, as the end of a sentence."""

    usual: dict[str, float] = field(default_factory=dict)
    """By arm, what one of its steps took in the run before the rounds, behind those of its start."""

    peaks: dict[str, int] = field(default_factory=dict)
    """By arm, the highest peak of memory that it reported, in bytes."""

    devices_of: dict[str, int] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    """By arm, wall seconds of its processes."""

    @property
    def devices(self) -> int:
        """That an arm has: of arms with other numbers the most."""
        return max(self.devices_of.values(), default=1)

    @property
    def spent(self) -> float:
        """GPU seconds: wall seconds times devices."""
        return sum(self.devices_of.get(name, 1) * seconds for name, seconds in self.held.items())

    @property
    def first_pair_seconds(self) -> float:
        """GPU seconds that a block of each arm takes about: as its first run, or less where that had to compile."""
        return sum(self.devices_of.get(name, 1) * wall for name, (_, wall) in self.first.items())

    def spent_before(self, what: str, needs: float = 0.0) -> str:
        """Why `what` must not begin, before the first round: the budget is spent. Empty where it may. needs: as of
        `spent_by`."""
        return spent_by(self.asked.rules, {FIRST_RUNS: self.spent}, what, needs)


@dataclass(slots=True)
class Player:
    """Takes blocks by running commands."""

    found: Measured
    guard: Guard
    folder: Path
    """For logs and reports."""

    say: Say
    number: int = 0

    def block(self, name: str, round_: Round) -> Block:
        told, wall, when, processes = self.run(name)
        self.guard.own = processes
        return Block(
            arm=name,
            pair=round_.number,
            first_step=1,
            steps=told.steps or 0,
            examples=told.examples or 0,
            documents=0,
            real_tokens=told.tokens,
            label_tokens=told.label_tokens or 0,
            processed_tokens=told.processed_tokens or 0,
            seconds=told.seconds,
            wall_seconds=wall,
            loss=told.loss,
            clocks=self.guard.window(*when),
            of_noise=round_.of_noise,
        )

    def drop(self, name: str) -> None:
        """Nothing is left of a command that has ended."""

    @property
    def spent(self) -> float:
        return self.found.spent

    def run(self, name: str, first: bool = False) -> tuple[Told, float, tuple[float, float], set[int]]:
        """A run of an arm: its report, wall seconds, when it ran, and its processes. Raises `ArmFailedError`.

        first: its time does not count, so that its steps are looked at meanwhile.
        """
        one = next(one for one in self.found.asked.commands if one.name == name)
        self.number += 1
        stem = f"{self.number:03}-{chr(ord('a') + self.found.asked.commands.index(one))}"
        output, errors = self.folder / f"{stem}.out.log", self.folder / f"{stem}.err.log"
        report = self.folder / f"{stem}.json"
        environment = {**os.environ, **one.environment, VARIABLE: str(report)}
        steps = self.found.asked.steps
        counting = Counting(self.folder / stem, steps) if first or steps else None
        if counting is not None:
            environment = counting.environment(environment)
        ran = run(one.words, one.folder, environment, output, errors)
        self.found.held[name] = self.found.held.get(name, 0.0) + ran.wall
        try:
            told = counting.told(one.words) if counting and steps else report_of(report, output, ran.wall)
        except DataError as error:
            remedy = f". {REPORT}" if steps else ""
            raise ArmFailedError(f"{name}: {error}{remedy}", "user", output) from error
        if counting is not None and not steps:
            self._look(one, told, counting)
        if told.peak_memory:
            self.found.peaks[name] = max(self.found.peaks.get(name, 0), told.peak_memory)
        self.found.devices_of[name] = told.devices
        self.say(f"{name}: {told.tokens:,} tokens in {told.seconds:.2f} s, set-up {ran.wall - told.seconds:.2f} s")
        return told, ran.wall, (ran.began, ran.ended), ran.processes

    def _look(self, one: Command, told: Told, counting: Counting) -> None:
        """At what a report counts, beside the steps and batches of the run that it is of. One that tells both counts is
        believed where these cannot be read."""
        try:
            record = counting.record(one.words)
            if usual := usual_step(record):
                self.found.usual[one.name] = usual
            self.found.padding[one.name] = counts_padding(told, record)
        except DataError as error:
            if told.processed_tokens is None:
                self.found.unchecked[one.name] = str(error)


def measure(
    asked: Asked,
    device: dict[str, Any],
    folder: Path,
    say: Say,
    between: Callable[[Measured, int], None] = lambda found, done: None,
) -> Measured:
    """folder: for logs and reports. device: from `workers.device.ask`. between: gets what was seen so far behind each round
    but the last, with how many were run.

    Raises `ArmFailedError` where a command fails or reports nothing: only running out of memory is a result from the first
    run on.
    """
    found = Measured(names=[one.name for one in asked.commands], asked=asked, device=device)
    with Guard(device.get("uuid")) as guard:
        player = Player(found, guard, folder, say)
        # Not counted: files are read and kernels compiled for the first time in it, which those behind it find done.
        for name in found.names:
            if why := found.spent_before(f"{name} ran"):
                found.unfinished = why
                break
            try:
                told, wall, _, _ = player.run(name, first=True)
            except ArmFailedError as error:
                if error.kind != "memory":
                    raise
                found.failed[name] = reason(error)
                say(f"{name}: {found.failed[name]}")
            else:
                found.first[name] = told, wall

        def so_far(done: int) -> None:
            between(noted(found, guard), done)

        running = [name for name in found.names if name not in found.failed]
        if not found.unfinished and len(running) > 1:
            found.unfinished = found.spent_before("the first pair", found.first_pair_seconds)
        if found.unfinished:
            say(f"this is where it ends: {found.unfinished}")
        elif found.names[0] in running:
            play(found, player, running, asked.pairings, asked.rules, asked.seed, say, so_far)
        return noted(found, guard)
