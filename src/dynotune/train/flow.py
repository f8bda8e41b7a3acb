"""From a configuration to a run folder, whatever is trained: every part is made once, in the order of the flow."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

from dynotune.config.variables import export_env
from dynotune.config.whole import WholeConfig
from dynotune.errors import Interrupted, TrainingError
from dynotune.model.precision import choose_precision
from dynotune.model.prepare import Prepared, prepare_model
from dynotune.model.saveable import make_saveable
from dynotune.model.tokenizer import apply_settings, load_tokenizer_and_changes
from dynotune.parallel.join import joined, place
from dynotune.parallel.ranks import Ranks
from dynotune.say import sayer
from dynotune.speedups.table import planned_rows, show
from dynotune.train.assemble import assemble
from dynotune.train.begin import begin
from dynotune.train.checkpoints.checkpoints import Checkpoints
from dynotune.train.device import draw_apart, seed_everything, set_up_process
from dynotune.train.execution import choose_execution
from dynotune.train.faults.before import out_of_memory_explained
from dynotune.train.finish import Left, finish, leave
from dynotune.train.hub import HubPusher
from dynotune.train.loop import train
from dynotune.train.material import named_paths, read_material
from dynotune.train.outside.asked import Asked, limit_of
from dynotune.train.outside.kept import what_is_kept
from dynotune.train.outside.signals import StoppedError, heard, number_of
from dynotune.train.ranks import go_on_from, open_folder
from dynotune.train.recipe import Recipe, Start
from dynotune.train.rehearse import in_words, rehearse
from dynotune.train.run import Run
from dynotune.train.trackers import AT_ONCE, Trackers

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback


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


@dataclass(frozen=True, slots=True)
class Given:
    """What a caller brings as objects, instead of naming it in the configuration."""

    model: "PreTrainedModel | None" = None
    """A PeftModel is trained as it is."""

    tokenizer: "PreTrainedTokenizerBase | None" = None
    train_dataset: Any = None
    """A `datasets.Dataset` or a list of dicts."""

    eval_dataset: Any = None
    """The same, or a dict of several."""

    callbacks: "Sequence[TrainerCallback]" = ()
    peft_config: "PeftConfig | None" = None
    """Instead of the `lora_*` keys."""


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
    signals = heard()
    left: Left | None = None
    resume = config.resume_from_checkpoint
    folder = open_folder(config, ranks)
    console = console if console and ranks.is_first else Console()
    say = folder.lines.say = sayer(console)
    prepared: Prepared | None = None
    run: Run | None = None
    trackers: Trackers | None = None
    try:
        for sentence in config.notices:
            say(f"note: {sentence}")
        precision = choose_precision(config, config, device, given.peft_config)
        folder.refuse_inputs_inside(named_paths(config))
        checkpoints = Checkpoints(folder.checkpoints, config, ranks=ranks, gather=ranks.gather, say=say)
        config, resume_from = go_on_from(config, checkpoints, ranks, say)
        name = config.run_name or folder.path.resolve().name
        # What can fail for want of a login or a package fails now, not after the data has been read.
        hub = HubPusher(config, folder.path, say=say) if config.push_to_hub and ranks.is_first else None
        report_to = config.report_to if ranks.is_first else "none"
        trackers = Trackers(report_to, config.project, name, folder.path, config.public_dict(), say=say)
        sent = trackers.log
        if (tokenizer := given.tokenizer) is None:
            tokenizer, changes = load_tokenizer_and_changes(config, config)
        else:
            changes = apply_settings(tokenizer, config, config)
        material = read_material(
            config,
            folder,
            tokenizer,
            ranks,
            console,
            train_dataset=given.train_dataset,
            eval_dataset=given.eval_dataset,
        )

        seed_everything(config.seed)  # what is drawn for the model must not depend on what was drawn for the data
        with out_of_memory_explained("loading", config, device):
            prepared = prepare_model(config, precision, device, tokenizer, changes, given.model, given.peft_config)
        own = recipe.on_model(prepared.model, prepared.undo)
        for line in (*prepared.says, *own, make_saveable(prepared.model)):
            if line:
                say(line)
        material.check_vocabulary(prepared.facts.vocabulary)
        with out_of_memory_explained("probing", config, device):
            execution = choose_execution(
                config,
                material.plan,
                prepared.model,
                recipe.paths,
                held_out=material.held_out,
                precision=precision,
                undo=prepared.undo,
                ranks=ranks,
                say=say,
            )
        for line in (*execution.says, *([execution.plan.ranks_summary()] if ranks.world > 1 else [])):
            say(line)
        if ranks.is_first:
            show(planned_rows(execution.installed.decisions), console)
        with out_of_memory_explained("the reference", config, device, execution.plan):
            before = recipe.before_first_step(
                Start(
                    execution=execution,
                    material=material,
                    model=prepared.model,
                    device=device,
                    ranks=ranks,
                    resumed=resume_from is not None,
                    as_in_files=prepared.as_in_files,
                    continued_adapter=given.model is not None and hasattr(given.model, "peft_config"),
                    rehearsal=rehearsal,
                    say=say,
                    console=console,
                )
            )
        rows: list[dict[str, Any]] = []
        draw_apart(config.seed, ranks)
        outside = Asked(signals, limit_of(config, signals, prepared.model), say)
        run = assemble(
            config,
            folder=folder,
            items=material.items,
            places=material.places,
            held_out=material.held_out,
            model=prepared.model,
            tokenizer=tokenizer,
            objective=recipe.objective,
            execution=execution,
            device=device,
            callbacks=given.callbacks,
            checkpoints=checkpoints,
            resume_from=resume_from,
            console=console,
            listeners=[rows.append, lambda row: sent(row, row["step"])],
            on_save=hub.push_checkpoint if hub else lambda checkpoint: None,
            ranks=ranks,
            outside=outside,
        )
        if run.update.waits_for_device:
            say(f"note: `optim: {config.optim}` has no fused kernel here, so the host waits for the device once a step")
        if rehearsal:
            figures = rehearse(run)
            say(in_words(figures, ranks.world))
            return RunResult(folder.path, 0, [], figures, prepared.model, tokenizer), None
        begin(run, config, folder, resume_from, prepared.facts.to_json(), [*execution.says, *before], material, say)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        try:
            train(run)
        finally:
            outside.end()
            run.display.stop()
            checkpoints.close()
        for line in [*execution.path.notes(), *execution.installed.notes()]:
            say(line)
        if run.leaving:
            left, summary = leave(run, folder, began)
        else:
            summary = finish(run, config, folder, hub, began)
    except BaseException as error:
        ranks.fail(error)  # at once: what follows may take its time, and others wait
        if isinstance(error, KeyboardInterrupt):
            # What an older run left in the folder is no progress of this one, unless this one resumes it.
            found = Checkpoints(folder.checkpoints, config).all() if folder.begun or resume else []
            step = run.trainee.progress.step if run else None
            raise StoppedError(number_of(error), what_is_kept(folder, found, step)) from None
        if isinstance(error, OSError) and (said := folder.in_words(error)):
            raise TrainingError(said) from error
        raise
    finally:
        if prepared:
            prepared.restore()
        folder.release()
        if trackers:
            trackers.finish(*((AT_ONCE,) if signals and signals.leave else ()))
    return RunResult(folder.path, run.trainee.progress.step, rows, summary, prepared.model, tokenizer), left
