"""Checkpoints: model or adapter, optimizer, schedule, random states and counters, without pickle.

A checkpoint is written into a temporary folder and renamed, so a folder named `step-N` is complete.
"""

import json
import re
import shutil
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file

from dynotune.config.keys.saving import SavingConfig
from dynotune.errors import TrainingError
from dynotune.train.checkpoints.differences import check_same
from dynotune.train.checkpoints.training_state import restore_training_state, training_state
from dynotune.train.checkpoints.weights import (
    TRAINABLE,
    load_tensors,
    load_weights,
    model_folder,
    save_model,
    trainable_tensors,
)
from dynotune.train.checkpoints.whole_folders import put_in_place, recover, remove
from dynotune.train.state import Progress, Trainee

FORMAT = 1


class Checkpoints:
    """Writes, finds, restores and removes the checkpoints of a run."""

    def __init__(self, folder: Path, config: SavingConfig) -> None:
        self.folder, self.limit, self.only_model = folder, config.save_total_limit, config.save_only_model

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def all(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        found = [
            p for p in self.folder.glob("step-*") if re.fullmatch(r"step-\d+", p.name) and (p / "state.json").is_file()
        ]
        return sorted(found, key=lambda p: int(p.name.removeprefix("step-")))

    def save(self, trainee: Trainee) -> Path:
        """Write the checkpoint of the step just done, then remove what `save_total_limit` no longer keeps."""
        target = self.path(trainee.progress.step)
        half = target.with_name(f".{target.name}.half")
        try:
            self._write(trainee, half)
            put_in_place(half, target)
        except (OSError, SafetensorError, TrainingError) as error:
            shutil.rmtree(half, ignore_errors=True)
            whole = self.all()
            kept = f"the newest complete one is {whole[-1]}" if whole else "there is none before it"
            raise TrainingError(
                f"The checkpoint of step {trainee.progress.step} could not be written ({error}); {kept}. Make room on the"
                " disk, then go on with `resume_from_checkpoint: true`."
            ) from error
        self._prune(keep={trainee.progress.step, trainee.progress.best_step})
        return target

    def _write(self, trainee: Trainee, half: Path) -> None:
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        save_model(trainee.model, trainee.tokenizer, half / model_folder(trainee.is_adapter))
        if trainee.is_adapter:
            # PEFT's file holds what inference needs, under PEFT's names. This one holds what was trained, as it was.
            save_file(trainable_tensors(trainee.model), half / TRAINABLE)
        tensors, state = ({}, {}) if self.only_model else training_state(trainee)
        if tensors:
            save_file(tensors, half / "training.safetensors")
        state |= {
            "format": FORMAT,
            "plan": trainee.plan,
            "settings": trainee.settings,
            "progress": asdict(trainee.progress),
            "resumable": not self.only_model,
        }
        (half / "state.json").write_text(json.dumps(state), encoding="utf-8")

    def _prune(self, keep: set[int | None]) -> None:
        if self.limit is None:
            return
        present = self.all()
        spare = [p for p in present if int(p.name.removeprefix("step-")) not in keep]
        for old in spare[: max(0, len(present) - self.limit)]:
            remove(old)

    def find(self, asked: str | bool) -> Path:
        """The checkpoint to resume from: the newest one, or the one that was named."""
        if self.folder.is_dir():
            recover(self.folder)
        if isinstance(asked, bool) or asked.lower() == "true":
            present = self.all()
            if not present:
                raise TrainingError(
                    f"`resume_from_checkpoint: true`, but {self.folder} holds no complete checkpoint. Start without it, or"
                    " name a checkpoint."
                )
            return present[-1]
        path = Path(asked)
        if not (path / "state.json").is_file():
            raise TrainingError(
                f"`resume_from_checkpoint: {path}` is not a checkpoint of Dynotune (it has no state.json). A checkpoint is a"
                " folder `checkpoints/step-N` of a run folder."
            )
        return path

    def abandon_after(self, step: int) -> list[Path]:
        """Set checkpoints of steps that will be done again aside, so that none is taken for the run that goes on."""
        later = [p for p in self.all() if int(p.name.removeprefix("step-")) > step]
        moved = []
        for path in later:
            target = path.with_name(f"abandoned-{path.name}")
            if target.exists():
                remove(target)
            moved.append(path.rename(target))
        return moved

    def restore(self, path: Path, trainee: Trainee) -> None:
        """Put everything back as it was when the checkpoint was written."""
        state = _read_state(path)
        if state["format"] != FORMAT:
            raise TrainingError(f"{path} has checkpoint format {state['format']}; this version reads {FORMAT}.")
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
        check_same(path, state, trainee.plan, trainee.settings)
        load_weights(trainee.model, path)
        tensors = load_tensors(path / "training.safetensors")
        try:
            restore_training_state(trainee, tensors, state)
            progress = Progress(**state["progress"])
        except (KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
            raise TrainingError(
                f"{path} does not hold what a resume needs ({type(error).__name__}: {error}): it was edited or damaged. Name"
                " another checkpoint."
            ) from error
        for counter in fields(progress):
            setattr(trainee.progress, counter.name, getattr(progress, counter.name))


def _read_state(path: Path) -> dict[str, Any]:
    """state.json with everything that a resume needs, or an error that names the file."""
    needed = {"format", "resumable", "plan", "settings", "progress"}
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(f"{path / 'state.json'} cannot be read: {error}. Name an older checkpoint.") from error
    missing = needed - state.keys() if isinstance(state, dict) else needed
    if missing:
        raise TrainingError(
            f"{path / 'state.json'} lacks {', '.join(sorted(missing))}: it was edited, or another version wrote it. Name"
            " another checkpoint."
        )
    return dict(state)
