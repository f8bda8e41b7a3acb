"""A checkpoint between two steps of a run, and telling of it when it is in place."""

import time

from dynotune.train.run import Run


def save(run: Run) -> None:
    """Write a checkpoint of the step just done."""
    step = run.trainee.progress.step
    began = time.perf_counter()
    run.memory.must("checkpoint", run, lambda: run.checkpoints.save(run.trainee))
    run.saved_step = step
    run.outside.saved(time.perf_counter() - began)
    run.events.call("save", step, step / run.plan.steps_per_epoch)
    tell_of_checkpoints(run)


def tell_of_checkpoints(run: Run) -> None:
    """Say which checkpoints are in place now: one that is written beside training comes some steps after it was begun."""
    for path in run.checkpoints.written():
        run.outside.wrote(run.checkpoints.seconds)
        run.display.say(f"saved {path}")
        run.on_save(path)


def keep(run: Run) -> None:
    """Have the step just done on the disk, if anything is saved."""
    step = run.trainee.progress.step
    if step and run.save_every.strategy != "no" and run.saved_step != step:
        save(run)
    run.checkpoints.wait()
    tell_of_checkpoints(run)
