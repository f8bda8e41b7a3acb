"""Where arms run: one process that opens a run, lets one arm after the other stand in it, and takes steps of its plan.

What is measured is the training loop itself, with its optimizer, logging and feed; only what would leave something behind
(checkpoints, trackers, evaluation) is off.
"""

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from typing import Any

import numpy as np
import torch
from rich.console import Console

from dynotune.bench.workers.spent import spent_in
from dynotune.bench.workers.watch import Watch
from dynotune.config.whole import WholeConfig
from dynotune.measure.compiles import compile_seconds
from dynotune.measure.counters import count_kernels, counters
from dynotune.measure.steady import moved
from dynotune.measure.traces.step import TracedStep
from dynotune.measure.words import Counts
from dynotune.parallel.ranks import Ranks
from dynotune.plan.truncation import as_whole
from dynotune.speedups.table import planned_rows
from dynotune.speedups.whole_step import Presence
from dynotune.train.faults.memory import MOST_LOWERINGS
from dynotune.train.loop import train
from dynotune.train.run import Run
from dynotune.train.start.given import Given
from dynotune.train.start.opened import Opened, opened
from dynotune.train.start.recipe import Measured, Recipe
from dynotune.train.start.recipes import recipe_of
from dynotune.train.start.rehearse import largest
from dynotune.train.start.stand import Standing, stand
from dynotune.train.telling.journal import Row

FIRST_STEPS = 16
"""Whose reference is computed before the first of them: about those of a warm-up. Of 12,800 pairs of a 7B it took 80 s of an
H200 packed, and had not ended after six minutes where one sequence is computed at a time."""


class Stage:
    """A process's arms. Made by `opening`; one arm stands at a time."""

    def __init__(self, it: Opened, console: Console) -> None:
        self.it, self.console = it, console
        self.watch = Watch(it.device)
        self.rows: list[Row] = []
        self.out = ExitStack()
        self.standing: Standing | None = None
        self.proofs: dict[str, list[dict[str, Any]]] = {}
        """By arm, the rows of its engagement table: an arm is traced the first time that it stands."""

        self.unwanted: dict[str, list[str]] = {}
        """By arm, what its traced step should not have held and did."""

        self.spent: dict[str, dict[str, Any]] = {}
        """By arm, what the step of that trace spent its time on."""

        self.trace_seconds: dict[str, float] = {}
        """By arm, what that trace took besides its step: to begin and end it, and to read it."""

        self.name = ""
        self.recipe: Recipe = recipe_of(it.config)
        """Of the arm that stands."""

        self.compiled_before = 0.0
        count_kernels()

    @classmethod
    def opening(
        cls, config: WholeConfig, ranks: Ranks, device: torch.device, console: Console, stack: ExitStack
    ) -> "Stage":
        """Open the run of the first arm; it is held until `stack` is closed."""
        it = stack.enter_context(opened(config, recipe_of(config), Given(), ranks, device, console))
        # Libraries and the model hold millions of objects that stay: each change of arms would look through all of them.
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        stage = cls(it, console)
        stack.callback(stage.leave)
        return stage

    @property
    def run(self) -> Run:
        assert self.standing is not None, "no arm stands"
        return self.standing.run

    def stand(self, name: str, config: WholeConfig, shares: bool = True) -> dict[str, Any]:
        """Take out what stands and put this arm in. Returns what it will do.

        shares: whether somebody asks on what its step is spent. An arm of whose step nobody asks and in which nothing stands
        that could be proved is not traced: of documents one by one a step has hundreds of thousands of events.
        """
        self.leave()
        self.rows.clear()
        self.compiled_before = compile_seconds()
        given = Given(callbacks=[self.watch])
        self.recipe = recipe_of(config)
        self.standing = stand(
            self.it,
            config,
            self.recipe,
            given,
            undo=self.out,
            listeners=[self.rows.append],
            measured=Measured(FIRST_STEPS, goes_on=True),
        )
        self.name = name
        execution = self.standing.execution
        if name not in self.proofs and not shares and not [*execution.installed]:
            self.proofs[name] = [row.to_json() for row in planned_rows(execution.installed.decisions)]
        if name in self.proofs:
            self.run.engagement.left = 0  # it was traced; another trace would be a slow step in a block
        self.run.engagement.hears = self._hear
        # A ceiling weighs classes of work against the step's time on the clock. From a few micro-batches it could only be
        # scaled by tokens, which take several times as long in short documents; one that is too low accuses a right figure.
        self.run.engagement.whole = shares
        self.run.memory.lowerings = MOST_LOWERINGS  # where memory runs out, smaller micro-batches would be another arm
        plan = execution.plan
        return {
            "said": [*execution.says, *self.standing.before],
            "installed": [one.name for one in execution.installed],
            "examples_a_step": plan.examples_per_step,
            "steps_an_epoch": plan.steps_per_epoch,
            "packs": plan.packing is not None,
            "work": execution.site.context.work,
            "precision": str(execution.site.context.compute).removeprefix("torch."),
            "model": self.it.prepared.facts.to_json(),
        }

    def _hear(self, traced: TracedStep) -> None:
        began = time.perf_counter()
        if self.name not in self.spent and (found := spent_in(traced, self.run.trainee.model)) is not None:
            self.spent[self.name] = found
        took = time.perf_counter() - began + (traced.evidence.seconds if traced.evidence else 0.0)
        self.trace_seconds[self.name] = self.trace_seconds.get(self.name, 0.0) + took

    def leave(self) -> None:
        """Take out what stands; the model is as it was. What the arm has trained stays in its weights."""
        if self.standing is None:
            return
        self.standing.run.display.stop()
        self.standing = None
        self.it.run = None
        self.recipe = recipe_of(self.it.config)  # that of the arm holds its run
        self.out.close()
        gc.collect()  # the optimizer's states and the plan of the arm that left

    def take(self, first: int, steps: int, discarded: int = 1, watches_counters: bool = False) -> dict[str, Any]:
        """Take the plan's steps from `first` on, behind some that do not count: the feed and the caches are another arm's.

        Returns what the block held and what it took.
        """
        run, last = self.run, first + steps - 1
        begin = max(0, first - 1 - discarded)
        if self._prepared(max(0, begin - 1), last):
            begin = max(0, begin - 1)  # the device comes from other work: one step more that does not count
        run.trainee.progress.step = begin
        self.rows.clear()
        self.watch.arm(first, last, watches_counters)
        before = counters(self.it.device)
        self.it.trained = True
        train(run)
        after = counters(self.it.device)
        if run.engagement.proof is not None and self.name not in self.proofs:
            record = run.engagement.proof.record(run.engagement.remembered)
            self.proofs[self.name] = [row.to_json() for row in record.rows]
            found = [one for one in record.unwanted if one.presence is Presence.FOUND]
            self.unwanted[self.name] = [f"{one.what} ({one.evidence})" for one in found]
        taken = list(islice(run.plan.steps(first - 1), steps))
        counts = sum((Counts.of(step) for step in taken), Counts())
        utilisation = run.journal.utilisation
        flops = sum(utilisation.of_step(step).model_flops for step in taken)
        losses = [row["loss"] for row in self.rows if "loss" in row]
        return {
            **{key: value for key, value in asdict(counts).items() if key in WANTED},
            "first_step": first,
            "steps": steps,
            "seconds": self.watch.seconds,
            "when": self.watch.edges,
            "step_seconds": self.watch.step_seconds,
            "step_tokens": [step.real_tokens for step in taken],
            "device_seconds": sum(self.watch.step_seconds) if self.it.device.type == "cuda" else None,
            "flops": flops or None,
            "available_flops_a_second": utilisation.available_flops(1.0) or None,
            "loss": losses[-1] if losses else None,
            "moved": moved(before, after),
            "moved_within": self.watch.moved,
            "counters": self.watch.counted,
        }

    def _prepared(self, begin: int, last: int) -> bool:
        """Compute what the steps behind `begin` and up to `last` need besides their documents. Whether something was."""
        steps = islice(self.run.plan.steps(begin), last - begin)
        return self.recipe.before_steps(np.concatenate([one.rows for one in steps]))

    def compiled(self) -> float:
        """Seconds for which the arm that stands has compiled, since it was put in."""
        return compile_seconds() - self.compiled_before

    def lengths(self, spans: Sequence[tuple[int, int]]) -> dict[str, Any]:
        """Tokens of the examples in these steps (the first one, and how many), each once, and of all in the plan."""
        plan = self.run.plan
        units = as_whole(plan.spans)  # whatever the arm computes of them
        rows = [step.rows for first, steps in spans for step in islice(plan.steps(first - 1), steps)]
        seen = np.unique(np.concatenate(rows)) if rows else plan.rows[:0]
        return {
            "sample": units.lengths_of(seen).tolist(),
            "plan": units.lengths_of(np.unique(plan.rows)).tolist(),
        }

    def worst(self, say: Callable[[str], None]) -> dict[str, Any]:
        """Memory of the largest micro-batch that the plan could make, with the optimizer's states."""
        run, device = self.run, self.it.device
        tokens = largest(run.plan).tokens
        say(f"the largest micro-batch holds {tokens:,} tokens")
        if device.type != "cuda":
            return {"tokens": tokens}
        if self.recipe.before_steps(largest(run.plan).rows):
            torch.cuda.reset_peak_memory_stats(device)
        from dynotune.bench.workers.worst import measured

        return {"tokens": tokens, **measured(run, device)}


WANTED: Sequence[str] = ("examples", "documents", "real_tokens", "label_tokens", "processed_tokens", "sequence_tokens")
