"""What a run that was stopped where it stood leaves to go on from."""

from pathlib import Path

from dynotune.train.folder.run_folder import RunFolder


def what_is_kept(folder: RunFolder, checkpoints: list[Path], step: int | None) -> str:
    """A sentence for people. `checkpoints`: those to go on from, oldest first. `step`: the last one that was done."""
    if folder.finished is not None:
        return f"the run is complete: {folder.finished}"
    if not checkpoints:
        return "nothing was saved"
    lost = (step or 0) - int(checkpoints[-1].name.removeprefix("step-"))
    cost = f", {lost} step{'s' if lost > 1 else ''} back" if lost > 0 else ""
    return (
        f"the last checkpoint is {checkpoints[-1]}{cost}; go on with the same command and"
        f" `--output_dir {folder.path} --resume_from_checkpoint true`"
    )
