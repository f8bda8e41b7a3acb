"""An evaluation between two steps of a run: made, or left to the process that goes on."""

import time
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from dynotune.plan.plan import Step
from dynotune.train.run import Run


class EvaluationLeftError(Exception):
    """The run is to end and does not wait for an evaluation, which is made when it is gone on with."""


def evaluate_unless_leaving(run: Run, step: Step) -> bool:
    """As `evaluate`. Where the run is to end, the evaluation is owed: the process that goes on makes it first."""
    began, progress = time.perf_counter(), run.trainee.progress
    try:
        if run.leaving:
            raise EvaluationLeftError
        return evaluate(run, step.number, step.epoch, may_leave=run.ranks.world == 1)
    except EvaluationLeftError:
        progress.owes_evaluation, run.leaving = True, True
        run.events.take_back("evaluate")
        run.display.say(f"the evaluation of step {step.number} is left; it is made first when the run goes on")
        run.trainee.model.train()
        return False
    finally:
        run.outside.evaluated(time.perf_counter() - began)


def evaluate_owed(run: Run) -> bool:
    """The evaluation that the process before this one left. True if the checkpoint it stands in has to be written anew."""
    step = run.trainee.progress.step
    is_best = evaluate(run, step, run.plan.epochs_at(step))
    run.trainee.progress.owes_evaluation = False
    return run.save_best and is_best


def evaluate(run: Run, step: int, epoch: float, may_leave: bool = False) -> bool:
    """Held-out loss and generations. True if this is the best evaluation so far."""
    assert run.evaluator is not None
    began = time.perf_counter()

    def on_batch() -> None:
        run.events.call("prediction_step", step, epoch)
        if may_leave and run.outside.cannot_wait():
            raise EvaluationLeftError

    metrics: dict[str, Any] = dict(
        run.memory.evaluate(
            run,
            lambda evaluator, ladder: evaluator(
                run.trainee.model, run.autocast(), ladder, on_batch=on_batch, step=step
            ),
        )
    )
    metrics["eval_seconds"] = time.perf_counter() - began
    run.journal.write({"step": step, "epoch": round(epoch, 6), **metrics})
    if run.evaluator.samples:
        generate = run.evaluator.generate
        with run.ranks.first_alone("sampling generations") as mine:
            if mine:
                rows = run.memory.generate(run, lambda: generate(run.trainee.model, run.autocast()))
                run.keep_samples(step, rows)
    run.events.call("evaluate", step, epoch, metrics=metrics)
    if isinstance(run.trainee.schedule, ReduceLROnPlateau) and step:
        assert run.best is not None
        run.trainee.schedule.step(metrics[run.best.metric])
    return run.best.update(metrics) if run.best and step else False
