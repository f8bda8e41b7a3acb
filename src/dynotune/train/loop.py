"""The training loop. One loop for every objective and every way of executing it; it reads from top to bottom."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from dynotune.errors import TrainingError
from dynotune.measure.wall import Kind
from dynotune.plan.plan import Step
from dynotune.train.evaluating import evaluate, evaluate_owed, evaluate_unless_leaving
from dynotune.train.faults.draws import Draws
from dynotune.train.faults.nonfinite import stopped_at
from dynotune.train.meter import Meter
from dynotune.train.orders import Orders
from dynotune.train.run import Run
from dynotune.train.saving import keep, save, tell_of_checkpoints


def train(run: Run) -> None:
    """Take every step of the plan that is not done yet. Events come in transformers' order."""
    progress, plan, events = run.trainee.progress, run.plan, run.events
    run.trainee.model.train()
    events.call("init_end", 0, 0.0)
    events.call("train_begin", progress.step, plan.epochs_at(progress.step))
    meter = Meter(run.device, run.surroundings.pauses)
    if run.eval_on_start and progress.step == 0:
        with meter.aside(Kind.EVALUATION):
            evaluate(run, 0, 0.0)
    if progress.owes_evaluation and run.evaluator is not None:
        with meter.aside(Kind.EVALUATION):
            if evaluate_owed(run):
                save(run)
    run.outside.begin()
    new_epoch = True
    with closing(run.feed.steps(plan, after=progress.step)) as steps:
        for step, batches in steps if not is_over(run) else ():  # resumed, it may have no patience left
            done_before = step.number - 1, plan.epochs_at(step.number - 1)
            if new_epoch:
                events.call("epoch_begin", *done_before)
            events.call("step_begin", *done_before)
            while (orders := take_proved_step(run, meter, step, batches)) is None:
                meter.clock.lost()
                step, batches = steps.again(run.plan)
            run.leaving = orders.leave
            run.display.step(step.number)
            run.watch.at(step.number)
            events.ask("log", run.log_every.due(step.number))
            events.ask("evaluate", run.evaluate_every.due(step.number))
            events.ask("save", run.save_every.due(step.number) or orders.save or run.unwritten.due())
            events.call("step_end", step.number, step.epoch)
            log_evaluate_save(run, meter, step)
            new_epoch = step.number % plan.steps_per_epoch == 0
            if new_epoch or is_over(run):
                events.ask("log", run.log_every.due_at_epoch_end(step.number))
                events.ask("evaluate", run.evaluate_every.due_at_epoch_end(step.number))
                events.ask("save", run.save_every.due_at_epoch_end(step.number))
                events.call("epoch_end", step.number, step.epoch)
                run.watch.mark("epoch")
                log_evaluate_save(run, meter, step)
            if is_over(run):
                break
    # A run whose last evaluation was left is not done: the best model is known behind it.
    run.leaving = run.leaving and (progress.step < plan.total_steps or progress.owes_evaluation)
    log = run.log_every.strategy != "no" and not run.leaving  # whoever goes on writes the row that is open
    meter.close(log, last=True)
    read(run, meter, wait=True)
    if log:
        run.journal.flush()  # an evaluation on the last step has closed the window already
    tell_of_checkpoints(run, wait=True)
    stopped_early = progress.step < plan.total_steps and run.save_every.strategy == "steps"
    if (run.leaving or stopped_early) and run.ranks.agree(run.saved_step != progress.step)[0]:
        save(run, must=run.leaving)  # what was trained since the last checkpoint is kept
    tell_of_checkpoints(run, wait=True)
    run.outside.end()
    events.call("train_end", progress.step, plan.epochs_at(progress.step))


def take_proved_step(run: Run, meter: Meter, step: Step, batches: Iterator[Any]) -> Orders | None:
    """As `take_step`; where it is due, under a trace that shows which speed-ups run.

    Raises `ConfigError` where one that was asked for by name does not.
    """
    if not run.engagement.due(step.number, run.plan.total_steps):
        return take_step(run, meter, step, batches)
    with run.engagement.tracing(run, step, meter.clock):
        orders = take_step(run, meter, step, batches)
    if orders is not None:
        with meter.aside(Kind.PROOF):
            why = run.engagement.conclude(run)
        if why:
            raise give_up(run, meter, why)
    return orders


def take_step(run: Run, meter: Meter, step: Step, batches: Iterator[Any]) -> Orders | None:
    """One update; returns what was asked for meanwhile. What is measured of it stays on the device and is read late.

    None: nothing was updated and `run.plan` executes the step otherwise; it is to be taken again.
    """
    run.ranks.at(step.number, "the forward and backward pass")
    draws = Draws.now(run.device)
    run.surroundings.step(step)
    counts = run.objective.counts(run.plan.spans, step.rows)
    accumulated = run.memory.attempt(
        "forward", lambda: forward_backward(run, step, meter.waited(batches, len(step.micro_batches)), counts[0])
    )
    if run.ranks.world > 1:  # alone there is nobody to wait for, and a mark takes as long as what it would set apart
        meter.now(Kind.COMMUNICATION)
    asked = run.outside.look()
    asked = Orders(asked.save or run.held.save, asked.leave or run.held.leave)
    flags = asked.save, asked.leave, run.bad_step is not None, *run.memory.ran_out(step)
    save_now, leave, is_bad, ran_out, far = run.ranks.agree(*flags)
    run.held, orders = Orders(), Orders(save_now, leave)
    if is_bad:
        meter.close(log=False)
        read(run, meter, wait=True)  # which raises, on every rank
    if ran_out:
        smaller = run.memory.smaller_plan(run, step, draws, far)
        if smaller is None:
            raise give_up(run, meter, run.memory.explain(run.memory.where(run.plan, step), run.plan))
        run.plan, run.held = smaller, orders
        return None
    assert accumulated is not None
    loss, sums = accumulated
    run.memory.must("the sum of gradients", run, lambda: run.ranks.sum_gradients(run.update.parameters))
    measured = run.ranks.sum(torch.cat([loss[None], sums]))
    run.ranks.at(step.number, "the update")
    meter.now(Kind.OPTIMIZER)
    with run.engagement.marks.update():
        updated = run.memory.attempt("optimizer", lambda: run.update(measured[0]))
    if updated is None:
        draws.restore()
        raise give_up(run, meter, run.memory.in_optimizer(run, step), clean=not run.update.stepping)
    norm, finite = updated
    run.nonfinite.taken(step.number, draws, run.trainee.schedule)
    learning_rate = run.trainee.schedule.get_last_lr()[0]
    advance_schedule(run)
    run.trainee.progress.step = step.number
    vector = torch.cat([torch.stack([measured[0], norm.to(loss.dtype), finite.to(loss.dtype)]), measured[1:]])
    meter.add(step, float(learning_rate), vector, waited=run.update.waits_for_device, counts=counts[1:])
    return orders


def forward_backward(run: Run, step: Step, batches: Iterator[Any], denominator: int) -> tuple[Tensor, Tensor]:
    """Accumulate the step's gradient. Returns its loss [], over what the objective counts, and its sums as they are."""
    loss = torch.zeros((), device=run.device)
    sums = torch.zeros(len(run.objective.sums), device=run.device)
    for i, batch in enumerate(batches):
        run.memory.micro_batch = i
        if i:
            run.events.call("substep_end", step.number - 1, run.plan.epochs_at(step.number - 1))
        micro_loss, micro_sums = forward_backward_micro_batch(run, batch, denominator, i)
        loss += micro_loss
        sums += micro_sums
    return loss / denominator, sums


def forward_backward_micro_batch(run: Run, batch: Any, denominator: int, number: int = 0) -> tuple[Tensor, Tensor]:
    """One backward. A function of its own, so that what the forward kept is gone before the next one begins."""
    marks = run.engagement.marks
    with run.path.engaged():
        run.memory.begin("forward")
        with marks.forward(number), run.autocast():
            loss, sums = run.path.loss(batch)
        run.memory.begin("backward")
        with marks.backward(number):
            (loss / denominator).backward()
    return loss.detach(), sums


def advance_schedule(run: Run) -> None:
    """The schedule follows the plan's step number; one that watches a metric moves after evaluations instead."""
    if not isinstance(run.trainee.schedule, ReduceLROnPlateau):
        run.trainee.schedule.step()


def log_evaluate_save(run: Run, meter: Meter, step: Step) -> None:
    """Do what is due or was asked for after a step: in this order, so that each may ask for what follows it."""
    events = run.events
    if events.asked("log"):
        events.take_back("log")
        meter.close(log=True)
    read(run, meter)
    tell_of_checkpoints(run)
    events.agree(run.ranks)
    refuse_the_impossible(run, meter)
    if not (events.asked("evaluate") or events.asked("save")):
        return
    with meter.aside(Kind.EVALUATION if events.asked("evaluate") else Kind.CHECKPOINT):
        # What was measured before belongs before the evaluation in the journal, and no checkpoint may be written past a
        # step that was not finite.
        meter.close(log=False)
        read(run, meter, wait=True)
        if events.asked("evaluate"):
            run.watch.mark("evaluation")
            is_best = evaluate_unless_leaving(run, step)
            events.ask("save", run.save_best and is_best)
            events.agree(run.ranks)
        if events.asked("save"):
            meter.clock.enter(Kind.CHECKPOINT)
            run.watch.mark("saving")
            save(run)
            events.agree(run.ranks)
    if not run.leaving:
        # It took a while: whoever asked to leave meanwhile does not wait for another step and another save.
        run.leaving = run.ranks.agree(run.outside.look(after_a_step=False).leave)[0]


def read(run: Run, meter: Meter, wait: bool = False) -> None:
    """Put windows that have arrived from the device into the journal; with `wait`, all that were closed.

    Raises `TrainingError` where a step ends the run; of several ranks, where all are sure to have read of it.
    """
    for window in meter.windows(wait) if run.bad_step is None else ():
        run.watch.take(window)
        run.bad_step = run.journal.take(window)
        run.nonfinite.passed(window.steps, run.bad_step)
        if run.bad_step is not None:
            break
    if run.bad_step is not None and (wait or run.ranks.world == 1):
        raise stopped_at(run, run.bad_step, keep)


def is_over(run: Run) -> bool:
    """Whether the step just taken is the run's last."""
    progress = run.trainee.progress
    out_of_patience = run.best is not None and run.best.out_of_patience
    return progress.step >= run.plan.total_steps or run.events.stop or out_of_patience or run.leaving


def refuse_the_impossible(run: Run, meter: Meter) -> None:
    """Stop where a callback asks for what cannot be done, with what was trained so far saved if anything is."""
    if run.events.asked("evaluate") and run.evaluator is None:
        what = "`should_evaluate`, but there is no held-out data: give `eval_dataset_name` or `test_split_size`"
    elif run.events.asked("epoch_stop") and not run.events.stop:
        what = (
            "`should_epoch_stop`, but a run is planned ahead and a step's number says which examples it holds. Ask for"
            " `should_training_stop`, or plan shorter epochs"
        )
    else:
        return
    raise give_up(run, meter, [f"At step {run.trainee.progress.step} a callback asked for {what}."])


def give_up(run: Run, meter: Meter, why: list[str], clean: bool = True) -> TrainingError:
    """The error that ends the run, with what was trained so far logged, and saved if anything is.

    clean: whether the weights are those of the last step that was taken.
    """
    meter.close(log=True)
    read(run, meter, wait=True)
    if clean:
        keep(run)
    return TrainingError("\n".join([*why, run.journal.where_to_go_on(run.trainee.progress.step)]))
