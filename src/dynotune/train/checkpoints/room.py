"""Room for checkpoints: on the disk for all that will be kept, in memory for a copy that is written beside training."""

import math
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from dynotune.config.whole import WholeConfig
from dynotune.errors import TrainingError
from dynotune.measure.memory import optimizer_states
from dynotune.train.cadence import Every
from dynotune.train.checkpoints.snapshot import changing_bytes
from dynotune.train.state import Trainee

WORTH_A_THREAD = 32 << 20
"""Bytes of a checkpoint from which it is written beside training. Smaller ones take tens of milliseconds, most of them for
the tokenizer's files, and training that waits for them is simpler."""

MEMORY_SHARE = 0.8
"""Of the host's free memory that the copy of a checkpoint may take."""

TOKENIZER_ROW = 150
"""Bytes a token of the vocabulary in the tokenizer's files, generously."""

OTHER_FILES = 1 << 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes on the disk."""

    model: int
    """The final model or adapter."""

    checkpoint: int
    copied: int
    """In memory: what is copied before training goes on."""


def sizes_of(trainee: Trainee, config: WholeConfig) -> Sizes:
    """From the live tensors and from the states that the optimizer will make."""
    trained = {id(p): p for p in trainee.model.parameters() if p.requires_grad}
    whole = trained if trainee.is_adapter else {id(p): p for p in trainee.model.parameters()}
    trained_bytes = sum(p.nbytes for p in trained.values())
    model = sum(p.nbytes for p in whole.values()) + TOKENIZER_ROW * len(trainee.tokenizer) + OTHER_FILES
    states = 0
    if not config.save_only_model:
        states = optimizer_states(trainee.model, config.optim, config.optim_args).bytes
    # An adapter is written twice: for PEFT, and as it was trained.
    checkpoint = model + states + (trained_bytes if trainee.is_adapter else 0)
    return Sizes(model, checkpoint, changing_bytes(trainee, states))


def times(every: Every, after: int) -> int:
    """How often something is due behind step `after`."""
    total = every.total_steps
    if every.strategy == "epoch":
        epochs = range(after // every.steps_per_epoch, math.ceil(total / every.steps_per_epoch))
        ends = (min((epoch + 1) * every.steps_per_epoch, total) for epoch in epochs)
        return sum(every.due_at_epoch_end(end) for end in ends if end > after)
    if every.strategy != "steps":
        return 0
    first = max(after, math.ceil(every.delay) - 1)
    count = total // every.interval - first // every.interval
    return max(0, count) + (every.last and total % every.interval != 0 and total > first)


def checkpoints_to_come(save: Every, evaluate: Every, after: int, with_best: bool) -> int:
    """How many will be written at most. `with_best`: every evaluation may be the best so far, which is kept."""
    return max(times(save, after), times(evaluate, after)) if with_best else times(save, after)


def most_at_once(to_come: int, present: int, limit: int | None, with_best: bool) -> int:
    """How many more than the `present` ones lie on the disk at the worst moment: the new one is written before one goes."""
    if limit is None:
        return to_come
    kept = max(limit, 2) if with_best else limit
    return min(to_come, max(1, kept - present + 1))


def require_disk(
    folder: Path, config: WholeConfig, sizes: Sizes, at_once: int, replaced: Iterable[Path] = ()
) -> str | None:
    """Raises `TrainingError` where the checkpoints and the model will not fit; else what to say.

    `replaced`: what will be removed before the first step. None where nothing is saved before the end.
    """
    needed = at_once * sizes.checkpoint + sizes.model
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return f"note: how much room {folder} has cannot be told ({error.strerror}); the run may write {shown(needed)}"
    if not usage.total:
        return f"note: the file system of {folder} tells no sizes; the run may write {shown(needed)}"
    free = usage.free + sum(p.lstat().st_size for top in replaced for p in (top, *top.rglob("*")) if p.is_file())
    what = (
        f"{at_once} checkpoint{'s' * (at_once != 1)} of {shown(sizes.checkpoint)} and the model of {shown(sizes.model)}"
    )
    if needed > free:
        remedies = [] if config.save_total_limit else ["`save_total_limit`"]
        remedies += [] if config.save_only_model else ["`save_only_model: true` (no resume)"]
        remedies += ["a larger `save_steps`", "another `output_dir`"]
        raise TrainingError(
            f"The run will keep {what} at once: {shown(needed)} ({needed:,} bytes). {folder} has {shown(free)} free"
            f" ({free:,} bytes). Nothing was trained. What helps: {', '.join(remedies[:-1])} or {remedies[-1]}."
        )
    return f"disk: at most {what} at once, {shown(needed)} of {shown(free)} free" if at_once else None


def why_waiting(sizes: Sizes, callbacks_wait: bool) -> str | None:
    """Why training must wait while a checkpoint is written; None where it need not."""
    if callbacks_wait:
        return "a callback has `on_save` and is called when the checkpoint is complete"
    left = memory_left()
    if sizes.copied > MEMORY_SHARE * left:
        return f"a copy of the state takes {shown(sizes.copied)}, and the host has {shown(left)} of memory left"
    return None


def memory_left(limits: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of host memory that can still be taken: the machine's, or the container's where that is less."""
    left = int(psutil.virtual_memory().available)
    try:
        limit = (limits / "memory.max").read_text().strip()
        stat = dict(line.split() for line in (limits / "memory.stat").read_text().splitlines())
        if limit != "max":  # pages of files are given back when memory is needed
            left = min(left, int(limit) - int(stat["anon"]))
    except (OSError, ValueError, KeyError):
        return left  # no container, or one of another kind
    return max(0, left)


def shown(count: int | float) -> str:
    """Bytes for people."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} bytes"
