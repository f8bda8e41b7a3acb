"""The training loop. One loop for every objective; it reads from top to bottom.

Legend of shapes: T tokens of a document, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dynotune.measure.clock import WindowClock
from dynotune.model.forward import logits_of_document
from dynotune.objectives.sft import Objective
from dynotune.plan.plan import Plan, Step
from dynotune.train.best import BestTracker
from dynotune.train.cadence import Every
from dynotune.train.checkpoint import Checkpoints, Trainee
from dynotune.train.data import Documents
from dynotune.train.evaluate import Evaluator
from dynotune.train.events import Events
from dynotune.train.journal import Journal
from dynotune.train.meter import Meter
from dynotune.train.optimizer import Update
from dynotune.train.progress import ProgressDisplay


@dataclass(slots=True)
class Run:
    """Everything the loop works with, each part made elsewhere."""

    plan: Plan
    documents: Documents
    trainee: Trainee
    objective: Objective
    update: Update
    autocast: Callable[[], Any]
    device: torch.device
    log_every: Every
    evaluate_every: Every
    save_every: Every
    evaluator: Evaluator | None
    best: BestTracker | None
    """Tracks the best evaluation; None where nothing asks for it."""

    save_best: bool
    """Save after every evaluation that is the best so far, so that the best model is never one that was not kept."""

    checkpoints: Checkpoints
    journal: Journal
    events: Events
    display: ProgressDisplay
    eval_on_start: bool = False
    keep_samples: Callable[[int, list[dict[str, str]]], None] = lambda step, rows: None
    on_save: Callable[[Path], None] = lambda checkpoint: None


def train(run: Run) -> None:
    """Take every step of the plan that is not done yet."""
    progress, model = run.trainee.progress, run.trainee.model
    model.train()
    run.events.call("train_begin", progress.step, progress.step / run.plan.steps_per_epoch)
    if run.eval_on_start and progress.step == 0:
        evaluate(run, 0, 0.0)
    meter = Meter(run.device)
    for step in run.plan.steps(after=progress.step):
        run.events.call("step_begin", step.number, step.epoch)
        loss, sums = forward_backward(run, step)
        norm, finite = run.update(loss)
        learning_rate = run.trainee.schedule.get_last_lr()[0]
        advance_schedule(run)
        progress.step = step.number
        vector = torch.cat([torch.stack([loss, norm.to(loss.dtype), finite.to(loss.dtype)]), sums])
        log_due = run.log_every.due(step.number) or run.events.asked("log")
        meter.add(step, float(learning_rate), vector, log=log_due)
        for window in meter.windows():
            run.journal.take(window)
        run.display.step(step.number)
        run.events.call("step_end", step.number, step.epoch)
        if step.number % run.plan.steps_per_epoch == 0:
            run.events.call("epoch_end", step.number, step.epoch)
        if between_steps(run, meter, step):
            break
    meter.close(log=run.log_every.strategy != "no")
    for window in meter.windows(wait=True):
        run.journal.take(window)
    run.events.call("train_end", progress.step, progress.step / run.plan.steps_per_epoch)


def forward_backward(run: Run, step: Step) -> tuple[Tensor, Tensor]:
    """Accumulate the step's gradient. Returns its loss [] and the objective's sums, both over the denominator."""
    denominator = run.objective.denominator(step)
    loss = torch.zeros((), device=run.device)
    sums = torch.zeros(len(run.objective.sums), device=run.device)
    for ids_T, labels_T in run.documents.of(step):
        micro_loss, micro_sums = forward_backward_document(run, ids_T, labels_T, denominator)
        loss += micro_loss
        sums += micro_sums
    return loss / denominator, sums / denominator


def forward_backward_document(run: Run, ids_T: Tensor, labels_T: Tensor, denominator: int) -> tuple[Tensor, Tensor]:
    """One micro-batch. A function of its own, so that its logits are gone before the next one's are made."""
    with run.autocast():
        logits_TV = logits_of_document(run.trainee.model, ids_T)
        loss, sums = run.objective(logits_TV, labels_T)
    (loss / denominator).backward()
    return loss.detach(), sums


def advance_schedule(run: Run) -> None:
    """The schedule follows the plan's step number; one that watches a metric moves after evaluations instead."""
    if not isinstance(run.trainee.schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
        run.trainee.schedule.step()


def between_steps(run: Run, meter: Meter, step: Step) -> bool:
    """Evaluate and save where due, with the training clock stopped. True if the run should end here."""
    evaluate_now = run.evaluate_every.due(step.number) or run.events.asked("evaluate")
    save_now = run.save_every.due(step.number) or run.events.asked("save")
    if not (evaluate_now or save_now):
        return run.events.stop
    with stopped(meter.clock):
        # What was measured before belongs before the evaluation in the journal, and no checkpoint may be written past a
        # step that was not finite.
        meter.close(log=False)
        for window in meter.windows(wait=True):
            run.journal.take(window)
        if evaluate_now:
            is_best = evaluate(run, step.number, step.epoch)
            save_now = save_now or (run.save_best and is_best)
        if save_now:
            save(run, step.number, step.epoch)
    return run.events.stop or (run.best is not None and run.best.out_of_patience)


class stopped:  # noqa: N801  (reads as a statement)
    """Training time does not run inside."""

    def __init__(self, clock: WindowClock) -> None:
        self.clock = clock

    def __enter__(self) -> None:
        self.clock.stop()

    def __exit__(self, *_: object) -> None:
        self.clock.start()


def evaluate(run: Run, step: int, epoch: float) -> bool:
    """Held-out loss and generations. True if this is the best evaluation so far."""
    if run.evaluator is None:
        return False
    import time

    began = time.perf_counter()
    metrics: dict[str, Any] = dict(run.evaluator(run.trainee.model, run.autocast()))
    metrics["eval_seconds"] = time.perf_counter() - began
    run.journal.write({"step": step, "epoch": round(epoch, 6), **metrics})
    if run.evaluator.samples:
        run.keep_samples(step, run.evaluator.generate(run.trainee.model, run.autocast()))
    run.events.call("evaluate", step, epoch, metrics=metrics)
    if isinstance(run.trainee.schedule, torch.optim.lr_scheduler.ReduceLROnPlateau) and step:
        run.trainee.schedule.step(metrics[run.best.metric if run.best else "eval_loss"])
    return run.best.update(metrics) if run.best and step else False


def save(run: Run, step: int, epoch: float) -> None:
    """Write a checkpoint."""
    path = run.checkpoints.save(run.trainee)
    run.display.say(f"saved {path}")
    run.events.call("save", step, epoch)
    run.on_save(path)
