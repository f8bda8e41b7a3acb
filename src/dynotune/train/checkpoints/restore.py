"""Putting everything back as it was when a checkpoint was written, and saying what could not be."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dynotune.errors import TrainingError
from dynotune.manifest import DamagedError, Manifest, versions
from dynotune.measure.totals import Totals
from dynotune.printable import printable
from dynotune.train.checkpoints.contents import TRAINING, read_manifest, read_random, read_state
from dynotune.train.checkpoints.differences import Difference, check_same, said_of
from dynotune.train.checkpoints.random_states import gpus_of, restore_random_states
from dynotune.train.checkpoints.training_state import check_schedules, restore_training_state
from dynotune.train.checkpoints.weights import load_tensors, load_weights
from dynotune.train.state import Progress, Trainee

OTHER_EVALUATIONS = {
    "metric_for_best_model",
    "greater_is_better",
    "eval_dataset_name",
    "dataset_test_split",
    "eval_packing",
}
"""Keys under whose other value the best evaluation so far cannot be compared with those to come."""


@dataclass(slots=True)
class Restored:
    """What a resume put back."""

    path: Path
    restored: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    differ: list[Difference] = field(default_factory=list)
    then: dict[str, str] = field(default_factory=dict)
    """Versions that wrote the checkpoint."""

    def lines(self) -> list[str]:
        """For people, a line each."""
        now = versions()
        changed = [name for name in now if self.then.get(name, now[name]) != now[name]]
        other = [f"{name} {self.then[name]} then, {now[name]} now" for name in changed]
        if other:
            self.missing.append(f"the last bit ({', '.join(other)}: other versions may round otherwise)")
        said = [f"restored: {'; '.join(self.restored)}"]
        if self.missing:
            said.append(f"not restored: {'; '.join(self.missing)}")
        return said + said_of(self.differ)


def restore(path: Path, trainee: Trainee, rank: int = 0, world: int = 1) -> Restored:
    """Put everything back. The checkpoint has been checked. Raises `TrainingError`."""
    state = read_state(path)
    if not state["resumable"]:
        raise TrainingError(
            f"{path} was written with `save_only_model`: it holds no optimizer state. To start a new run from it,"
            + (
                f" put the adapter into its base (`dynotune merge {path} --output DIR`) and give that folder as"
                if trainee.is_adapter
                else f" give {path / 'model'} as"
            )
            + " `model_name_or_path`."
        )
    done = Restored(path)
    try:
        manifest: Manifest = read_manifest(path)
        done.then = dict(manifest.about.get("versions", {}))
        done.differ = check_same(path, state, trainee.plan, trainee.settings)
        check_schedules(state["schedule"], trainee.schedule)
        changed = {one.key for one in done.differ}
        done.restored.append(f"{load_weights(trainee.model, path):,} weights")
        tensors = load_tensors(path / TRAINING) if TRAINING in manifest.files else {}
        states = restore_training_state(trainee, tensors, state, changed)
        done.restored += [f"{type(trainee.optimizer).__name__} states of {states:,} weights", "schedule"]
        _restore_random(done, path, trainee, rank, world)
        progress = checked_progress(state["progress"])
    except (DamagedError, LookupError, ValueError, TypeError, RuntimeError, AttributeError, OverflowError) as error:
        if isinstance(error, TrainingError):
            raise
        raise TrainingError(
            f"{path} does not hold what a resume needs ({type(error).__name__}: {printable(str(error), 300)}): it was edited"
            " or damaged. Name another checkpoint."
        ) from error
    if progress.best_step is not None and OTHER_EVALUATIONS & changed:
        keys = ", ".join(sorted(OTHER_EVALUATIONS & changed))
        done.missing.append(f"the best evaluation so far (step {progress.best_step}), since {keys} differs")
        progress.forget_best()
    for counter in fields(progress):
        setattr(trainee.progress, counter.name, getattr(progress, counter.name))
    counters = f"counters (step {progress.step:,}, {progress.tokens:,} tokens"
    counters += f", best at step {progress.best_step}" if progress.best_step is not None else ""
    counters += f", {len(progress.skipped_steps)} steps skipped" if progress.skipped_steps else ""
    done.restored.append(counters + ")")
    return done


def checked_progress(saved: dict[str, Any]) -> Progress:
    """The counters, each of its kind. Raises `TypeError`."""
    progress = Progress(**saved)
    for counter in fields(progress):
        value = getattr(progress, counter.name)
        kind = counter.type.__qualname__ if type(counter.type) is type else str(counter.type)
        none, base = kind.endswith(" | None"), kind.removesuffix(" | None")
        right = none if value is None else _is(value, base)
        if not right:
            raise TypeError(f"{counter.name} is {value!r}")
    return progress


def _is(value: Any, kind: str) -> bool:
    """Whether a value is of the annotated kind, as far as JSON tells kinds apart."""
    if kind == "list[int]":
        return isinstance(value, list) and all(type(one) is int for one in value)
    if kind == "Account":
        return isinstance(value, dict) and all(type(one) in (int, float) for one in value.values())
    kinds = {"int": (int,), "float": (int, float), "str": (str,), "Totals": (Totals,)}
    return kind not in kinds or type(value) in kinds[kind]


def _restore_random(done: Restored, path: Path, trainee: Trainee, rank: int, world: int) -> None:
    saved = read_random(path)
    if rank < len(saved):
        kinds, lost = restore_random_states(saved[rank], gpus_of(trainee.model))
        done.restored.append(f"random states of {', '.join(kinds)}" + (f" on {world} ranks" if world > 1 else ""))
        done.missing += lost
    if world != len(saved):
        had, have = f"{len(saved)} rank{'s' * (len(saved) > 1)}", f"{world} now"
        done.missing.append(f"random states as they were ({had} then, {have}): dropout draws other numbers")
