"""The run folder's beginning: what stands in it before the first step, once no rank can refuse any more."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dynotune.config.whole import WholeConfig
from dynotune.environment import collect
from dynotune.measure.wall import Kind, add, wall
from dynotune.parallel.alike import begin_alike
from dynotune.train.folder.run_folder import RunFolder
from dynotune.train.run import Run
from dynotune.train.start.material import Material


def begin(
    run: Run,
    config: WholeConfig,
    folder: RunFolder,
    resume_from: Path | None,
    model: Mapping[str, Any],
    says: Sequence[str],
    material: Material,
    say: Callable[[str], None],
) -> None:
    """Agree with the other ranks, take an older run out of the folder as far as this one does not go on from it, and write
    what is known. Until here a folder is as it was. model: facts of it, and says: what was
    said of its execution, for the record."""
    step = run.trainee.progress.step
    begin_alike(
        run.ranks,
        run.trainee.model,
        {
            "configuration": config.public_dict(),
            "plan": run.plan.to_json(),
            "execution": {"path": type(run.path).__name__},
            "checkpoint": {"step": step},
        },
    )
    changed = folder.unseal() if resume_from and run.ranks.is_first else []
    folder.write_json("plan.json", run.plan.to_json())  # first of all: it marks the folder as one of ours
    folder.begin()
    if resume_from and run.ranks.is_first:
        for sentence in changed:
            say(
                f"note: not all of the run is as it was written: {sentence}. The checkpoint is whole, and training goes on"
            )
        if not run.trainee.progress.account:
            say("note: the checkpoint has no account of wall time: cumulative figures of it begin with this process")
        account_for_lost(run, folder)
        progress = run.trainee.progress
        done = progress.open_row.steps
        kept = folder.forget_after(step, progress.owes_evaluation, done[-1].number if done else None)
        run.events.remember(kept)
        for path in run.checkpoints.abandon_after(step):
            say(f"note: a checkpoint of the run that was left is now {path}")
    _write_start(folder, config, model, says, material)
    folder.seal(step)


def account_for_lost(run: Run, folder: RunFolder) -> None:
    """Steps that an earlier process took and that are taken again cost their time twice. What it did behind its last row
    is not known."""
    row = run.trainee.progress.open_row.account
    behind = folder.seconds_behind(run.trainee.progress.step)
    if behind:
        add(run.trainee.progress.account, {Kind.LOST: max(0.0, behind - wall(row))})


def _write_start(
    folder: RunFolder,
    config: WholeConfig,
    model: Mapping[str, Any],
    says: Sequence[str],
    material: Material,
) -> None:
    """The files of the run folder that are known before the first step."""
    folder.write_text("config.yaml", config.to_yaml())
    folder.write_json("environment.json", {**collect(), "model": model, "execution": list(says)})
    evaluation = {name: loaded.ledger.to_json() for name, loaded in material.held_out_data.items()}
    folder.write_json(
        "ledger.json", {**material.data.ledger.to_json(), "format": material.data.format, "evaluation": evaluation}
    )
