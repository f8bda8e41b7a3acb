"""A checkpoint between two steps of a run, and telling of it when it is in place."""

import time

from dynotune.train.checkpoints.unwritten import LITTLE_PATIENCE, UnwrittenError
from dynotune.train.run import Run


def save(run: Run, must: bool = False) -> None:
    """Write a checkpoint of the step just done. One that cannot be written is said and tried again later.

    must: raise it instead, after some patience: nothing comes after it.
    """
    step = run.trainee.progress.step
    began = time.perf_counter()
    tell_of_checkpoints(run, wait=True)
    run.settle()
    patience = LITTLE_PATIENCE if must else 0.0
    try:
        run.memory.must("checkpoint", run, lambda: run.checkpoints.save(run.trainee, wait=must, patience=patience))
    except UnwrittenError as error:
        run.outside.saved(time.perf_counter() - began)
        if must:
            raise
        run.display.say(run.unwritten.failed(error))
        return
    run.saved_step = step
    run.outside.saved(time.perf_counter() - began)
    run.events.call("save", step, run.plan.epochs_at(step))
    tell_of_checkpoints(run)


def tell_of_checkpoints(run: Run, wait: bool = False) -> None:
    """Say which checkpoints are in place now, and which could not be written: with one that is written beside training,
    some steps after it was begun."""
    try:
        if wait:
            run.checkpoints.wait()
        run.checkpoints.check_background()
    except UnwrittenError as error:
        run.saved_step = None
        run.display.say(run.unwritten.failed(error))
    for path in run.checkpoints.written():
        run.unwritten.succeeded()
        run.outside.wrote(run.checkpoints.seconds)
        run.display.say(f"saved {path}")
        run.on_save(path)


def keep(run: Run) -> None:
    """Have the step just done on the disk, if anything is saved."""
    step = run.trainee.progress.step
    if step and run.save_every.strategy != "no" and run.ranks.agree(run.saved_step != step)[0]:
        save(run)
    tell_of_checkpoints(run, wait=True)
