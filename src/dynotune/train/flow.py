"""From a configuration to a run folder, whatever is trained: every part is made once, in the order of the flow."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

from dynotune.config.variables import export_env
from dynotune.config.whole import WholeConfig
from dynotune.errors import Interrupted
from dynotune.measure.parts import in_words as parts_in_words
from dynotune.measure.wall import Kind, add, wall
from dynotune.parallel.join import joined, place
from dynotune.parallel.ranks import Ranks
from dynotune.train.folder.finish import Left, finish, leave
from dynotune.train.loop import train
from dynotune.train.start.begin import begin
from dynotune.train.start.device import set_up_process
from dynotune.train.start.given import Given
from dynotune.train.start.opened import opened
from dynotune.train.start.recipe import Recipe
from dynotune.train.start.rehearse import in_words, rehearse
from dynotune.train.start.stand import stand

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run leaves behind."""

    folder: Path
    """The run folder; `model/` or `adapter/` in it loads in transformers or PEFT."""

    steps: int
    metrics: list[dict[str, Any]]
    """The rows of metrics.jsonl that this call wrote."""

    summary: dict[str, Any]
    """Figures of the whole run."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"


LONG = 5.0
"""Seconds of setting up from which on it is said what took them."""


def fine_tune(config: WholeConfig, recipe: Recipe, given: Given, console: Console | None) -> RunResult:
    """Train by `config` and `recipe`, with the other processes of the run where there are some. Signals are heard already
    (`listening`).

    Raises `ConfigError`, `DataError`, `TemplateError` or `ModelError` before the first step, `TrainingError` after it,
    `Interrupted` where the run was ended before its last step and is saved.
    """
    export_env(config.env)
    here = place(config)
    device = set_up_process(config, here.local_rank)
    with joined(here, device, config.ddp_timeout) as ranks:
        result, left = _train(config, recipe, given, ranks, device, console)
    if left:  # behind the last meeting of ranks: to leave is no failure of any of them
        raise Interrupted(left.text, why=left.why, step=result.steps, checkpoint=left.checkpoint, result=result)
    return result


def prove(config: WholeConfig, recipe: Recipe, console: Console | None) -> dict[str, Any]:
    """Do what a run of `config.gpus` processes does, on this one alone and up to the first update; write no run.

    Returns the figures of the largest micro-batch. Raises what the run would.
    """
    export_env(config.env)
    alone = config.replace(report_to="none", push_to_hub=False)
    device = set_up_process(alone)
    result, _ = _train(alone, recipe, Given(), Ranks(world=config.gpus or 1), device, console, rehearsal=True)
    return result.summary


def _train(
    config: WholeConfig,
    recipe: Recipe,
    given: Given,
    ranks: Ranks,
    device: torch.device,
    console: Console | None,
    rehearsal: bool = False,
) -> tuple[RunResult, Left | None]:
    """One rank's part of a run, and how it was left early. What must happen once for all happens on the first.

    rehearsal: one process stands for all of them and stops before the first update.
    """
    began = time.perf_counter()
    left: Left | None = None
    with opened(config, recipe, given, ranks, device, console) as run_of:
        config, folder, say = run_of.config, run_of.folder, run_of.say
        loaded = time.perf_counter()
        rows: list[dict[str, Any]] = []
        standing = stand(
            run_of,
            config,
            recipe,
            given,
            undo=run_of.prepared.undo,
            listeners=[rows.append, lambda row: run_of.trackers.log(row, row["step"])],
            rehearsal=rehearsal,
        )
        run, execution = standing.run, standing.execution
        if rehearsal:
            figures = rehearse(run)
            say(in_words(figures, ranks.world))
            return RunResult(folder.path, 0, [], figures, run_of.prepared.model, run_of.tokenizer), None
        facts = run_of.prepared.facts.to_json()
        said = [*execution.says, *standing.before]
        with run_of.set_up.of("run folder"):
            begin(run, config, folder, run_of.resume_from, facts, said, run_of.material, say)
        run.wall_before = wall(
            run.trainee.progress.account
        )  # with what `begin` found to be lost, which is no time of this one
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        with run_of.set_up.of("monitors"):
            run.surroundings.begin()
            run.watch.begin()
        ready = time.perf_counter()
        run.set_up = dict(run_of.set_up.seconds)  # what is put in later is in the account of steps
        if ready - loaded >= LONG:
            say(f"set up in {ready - loaded:.1f} s: {parts_in_words(run.set_up, ready - loaded)}")
        add(run.trainee.progress.account, {Kind.LOADING: loaded - began, Kind.SET_UP: ready - loaded})
        try:
            train(run)
        finally:
            run.surroundings.end()
            run.watch.end()
            run.outside.end()
            run.display.stop()
            run_of.checkpoints.close()
        for line in [*execution.path.notes(), *execution.installed.notes()]:
            say(line)
        if run.leaving:
            left, summary = leave(run, folder, began)
        else:
            summary = finish(run, config, folder, run_of.hub, began)
    step = run.trainee.progress.step
    return RunResult(folder.path, step, rows, summary, run_of.prepared.model, run_of.tokenizer), left
