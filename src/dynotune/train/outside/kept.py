"""What a run that was stopped where it stood leaves to go on from."""

from pathlib import Path

from dynotune.train.folder.run_folder import RunFolder


def the_same_command(folder: Path, overwrite: bool) -> str:
    """How a run in `folder` is gone on with, as the end of a sentence. overwrite: as its configuration said, which would
    remove what is gone on from."""
    without = ", without `overwrite_output_dir`" if overwrite else ""
    return f"with the same command and `--output_dir {folder} --resume_from_checkpoint true`{without}"


def what_is_kept(folder: RunFolder, checkpoints: list[Path], step: int | None, overwrite: bool = False) -> str:
    """A sentence for people. `checkpoints`: those to go on from, oldest first. `step`: the last one that was done.
    overwrite: as in `the_same_command`."""
    if folder.finished is not None:
        return f"the run is complete: {folder.finished}"
    if not checkpoints:
        return "nothing was saved"
    lost = (step or 0) - int(checkpoints[-1].name.removeprefix("step-"))
    cost = f", {lost} step{'s' if lost > 1 else ''} back" if lost > 0 else ""
    return f"the last checkpoint is {checkpoints[-1]}{cost}; go on {the_same_command(folder.path, overwrite)}"
