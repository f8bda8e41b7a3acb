"""Puts the parts of a run together: optimizer, schedule, cadence, journal, checkpoints, callbacks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console

from dynotune.config.whole import WholeConfig
from dynotune.data.rows import Place
from dynotune.errors import ConfigError
from dynotune.execution.feed import Feed, Items
from dynotune.measure.signs.record import Sign
from dynotune.measure.utilisation import Utilisation
from dynotune.measure.wall import wall
from dynotune.objectives.counted import Counted
from dynotune.parallel.ranks import Ranks
from dynotune.plan.pairs import PairSpans
from dynotune.say import sayer
from dynotune.speedups.failed import keep_failed
from dynotune.speedups.record import NAME as ENGAGEMENT
from dynotune.speedups.record import Record
from dynotune.speedups.table import show
from dynotune.train.best import BestTracker
from dynotune.train.cadence import cadences
from dynotune.train.checkpoints.checkpoints import Checkpoints
from dynotune.train.checkpoints.differences import check_reference
from dynotune.train.engagement import Engagement
from dynotune.train.evaluate import Evaluator, HeldOut
from dynotune.train.events import Events
from dynotune.train.faults.explain import Explainer
from dynotune.train.faults.limits import Limits, in_a_row
from dynotune.train.faults.memory import Memory, resumed
from dynotune.train.faults.nonfinite import NonFinite
from dynotune.train.folder.run_folder import RunFolder
from dynotune.train.optimizer import Update, build_optimizer, build_schedule
from dynotune.train.orders import Outside
from dynotune.train.run import Run
from dynotune.train.start.execution import Execution
from dynotune.train.state import Progress, Trainee
from dynotune.train.telling.journal import Journal, Row
from dynotune.train.telling.notices import Heard, Notices, by_name
from dynotune.train.telling.progress import ProgressDisplay
from dynotune.train.telling.surroundings import Surroundings
from dynotune.train.telling.watch import NAME as WARNINGS
from dynotune.train.telling.watch import Watch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

SHOWN = 80
"""Characters of a sampled prompt's end that are shown, and half of those of its generation."""


def assemble(
    config: WholeConfig,
    *,
    folder: RunFolder,
    items: Items,
    places: Sequence[Place],
    held_out: Mapping[str, HeldOut],
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    objective: Counted,
    execution: Execution,
    device: torch.device,
    callbacks: "Sequence[TrainerCallback]",
    checkpoints: Checkpoints,
    resume_from: Path | None,
    console: Console,
    listeners: Sequence[Callable[[Row], None]],
    on_save: Callable[[Path], None],
    ranks: Ranks,
    outside: Outside,
) -> Run:
    """A run ready for the loop; where the configuration resumes, its state is restored."""
    say = sayer(console)
    plan, path, site = execution.plan, execution.path, execution.site
    optimizer = build_optimizer(model, config, fused=site.fused_update)
    progress = Progress()
    trainee = Trainee(
        model,
        tokenizer,
        optimizer,
        build_schedule(optimizer, config, plan.total_steps),
        progress,
        plan.content(),
        config.public_dict(),
    )
    if resume_from:
        restored = checkpoints.restore(resume_from, trainee)
        for line in (f"resumed from {resume_from}: step {progress.step} of {plan.total_steps}", *restored.lines()):
            say(line)
        if progress.step >= plan.total_steps:
            say(
                f"note: all {plan.total_steps:,} steps had been taken: nothing is left to train, and what the run leaves"
                " behind is written again. To train on ask for more of `num_train_epochs` or `max_steps`"
            )
        check_reference(resume_from, progress.reference, items.reference)
        plan = resumed(plan, progress, device, say)
    progress.reference = items.reference
    log, evaluate, save = cadences(config, config, config, plan.steps_per_epoch, plan.total_steps)
    display = ProgressDisplay(console, plan.total_steps, progress.step, bool(config.disable_tqdm))
    watches = config.load_best_model_at_end or config.early_stopping_patience or config.save_strategy == "best"
    if (watches or evaluate.strategy != "no") and not held_out:
        raise ConfigError(
            "Evaluation was asked for (`eval_strategy`, `load_best_model_at_end` or `early_stopping_patience`), but there is"
            " no held-out data: give `eval_dataset_name`, or `test_split_size` to hold some rows out."
        )
    evaluator = None
    if held_out:
        evaluator = Evaluator(
            held_out, path, objective, tokenizer, device, config.eval_samples, config.eval_sample_max_new_tokens, ranks
        )
        evaluator.ahead = site.ahead
        for name in evaluator.sets_without_prompts():
            display.say(
                f"note: `eval_samples`: rows of {name} are trained from their first token: none has a prompt to answer."
                " Set `assistant_only_loss: true`, or give prompt/completion rows."
            )
    if str(config.lr_scheduler_type) == "reduce_lr_on_plateau" and evaluate.strategy == "no":
        raise ConfigError("`lr_scheduler_type: reduce_lr_on_plateau` watches evaluations: set `eval_strategy`.")

    def saved(checkpoint: Path) -> None:
        folder.seal(progress.step)  # so that the lines written so far are checked too
        on_save(checkpoint)

    limits = Limits.of(config)
    run = Run(
        plan=plan,
        path=path,
        feed=Feed(items, path, device, site.ahead),
        trainee=trainee,
        objective=objective,
        update=Update(
            (p for p in model.parameters() if p.requires_grad),
            optimizer,
            config.max_grad_norm,
            limits,
            (in_a_row(progress.skipped_steps, progress.step), len(progress.skipped_steps)),
        ),
        autocast=execution.autocast,
        device=device,
        log_every=log,
        evaluate_every=evaluate,
        save_every=save,
        evaluator=evaluator,
        best=BestTracker(config, progress) if watches else None,
        save_best=config.save_strategy == "best" or config.load_best_model_at_end,
        checkpoints=checkpoints,
        journal=Journal(
            tuple(objective.sums),
            progress,
            places,
            device,
            limits,
            [],
            Utilisation.of(
                model,
                device,
                config.device_peak_tflops,
                labelled_rows_head=path.labelled_rows_head,
                devices=ranks.world,
            ),
        ),
        events=Events(callbacks, config, trainee, plan, ranks),
        display=display,
        memory=Memory(Explainer(config, device, model, execution.memory), display.say),
        nonfinite=NonFinite(
            execution.ways,
            lambda report: folder.write_json("nonfinite.json", report),
            lambda row: str(places[row]),
            lambda speedup, reason: keep_failed(execution.remembered, speedup, site.context, reason),
        ),
        engagement=Engagement(
            execution.installed,
            device,
            ranks,
            execution.remembered,
            lambda proof: _keep_record(folder, display, proof.record(execution.remembered, execution.effect)),
            display.say,
        ),
        surroundings=Surroundings(device),
        watch=Watch(lambda step, sign: _see(run, folder, step, sign), isinstance(plan.spans, PairSpans)),
        notices=Notices(ranks),
        wall_before=wall(progress.account),
        eval_on_start=config.eval_on_start,
        keep_samples=lambda step, rows: _keep_samples(folder, display, step, rows),
        on_save=saved,
        ranks=ranks,
        outside=outside,
        settle=folder.settle,
    )
    run.journal.around, run.journal.of_ranks = run.surroundings, run.notices.row
    run.journal.own.others = lambda: run.watch.own_seconds, lambda: run.surroundings.own_seconds
    site.tell = run.watch.see
    run.hear = lambda heard: _hear(run, folder, heard)
    run.memory.on_phase, run.memory.on_shortage = run.surroundings.phase, run.surroundings.ran_out
    run.journal.listeners = [
        lambda row: folder.append("metrics.jsonl", row),
        display.log,
        lambda row: _judge(run, row),
        *listeners,
    ]
    run.journal.callbacks = lambda row: run.events.log(row["step"], row.get("epoch", 0.0), row)
    if ranks.is_first:
        for line in checkpoints.expect(
            trainee,
            config,
            save,
            evaluate,
            callbacks_wait=run.events.awaits_checkpoints,
            with_best=run.save_best,
            replaced=folder.removed_at_begin,
        ):
            display.say(line)
    return run


def _keep_record(folder: RunFolder, display: ProgressDisplay, record: Record) -> None:
    """Into engagement.json; the terminal gets a line, and the table where something was not seen to run."""
    folder.write_json(ENGAGEMENT, record.to_json())
    display.say(record.summary())
    if record.open:
        show(record.open, display.console)


def _judge(run: Run, row: Row) -> None:
    """Say what holds the run back, with a row of training metrics that has just been written."""
    if "wall_seconds" in row:
        run.watch.mark("logging")
        run.watch.judge(row, run.surroundings.lately, run.surroundings.retries)
        run.hear(run.notices.news())
    if note := run.surroundings.note:
        run.display.say(f"note: {note}")


def _see(run: Run, folder: RunFolder, step: int, sign: Sign) -> None:
    """This rank saw a sign: the first one says it, unless it has been said of another; others leave it for the first one."""
    if run.ranks.is_first:
        _keep_sign(folder, step, sign, run.ranks, 0)
    run.notices.sign(step, sign)
    if sign.name not in run.notices.said:
        run.notices.said.add(sign.name)
        run.display.say(f"warning: {sign.sentence()}")


def _hear(run: Run, folder: RunFolder, heard: Sequence[Heard]) -> None:
    """The first rank heard of what others saw: the file gets all of it, the terminal each thing once."""
    for one in heard:
        _keep_sign(folder, one.step, one.sign, run.ranks, one.rank)
    for who, one in by_name(heard):
        if one.sign.name not in run.notices.said:
            run.notices.said.add(one.sign.name)
            run.display.say(f"warning: {who}: {one.sign.sentence()}")


def _keep_sign(folder: RunFolder, step: int, sign: Sign, ranks: Ranks, rank: int) -> None:
    folder.append(WARNINGS, {"step": step, **({"rank": rank} if ranks.world > 1 else {}), **asdict(sign)})


def _keep_samples(folder: RunFolder, display: ProgressDisplay, step: int, rows: Sequence[Mapping[str, str]]) -> None:
    """Generations go to samples.jsonl; the first one is shown."""
    for row in rows:
        folder.append("samples.jsonl", {"step": step, **row})
    if rows:
        from dynotune.printable import printable

        prompt = rows[0]["prompt"]
        end = prompt if len(prompt) <= SHOWN else f"...{prompt[-SHOWN:]}"
        display.say(f"sample: {printable(end)} -> {printable(rows[0]['generation'], 2 * SHOWN)}")
