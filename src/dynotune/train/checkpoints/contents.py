"""The files of a checkpoint: written from a snapshot, and read back as far as JSON goes.

| file | what |
|---|---|
| `model/` or `adapter/` | as transformers or PEFT load it, with the tokenizer |
| `trainable.safetensors` | of an adapter: every trained weight under its own name |
| `training.safetensors` | the optimizer's states |
| `state.json` | plan, settings, counters, schedule, the optimizer's plain values |
| `random.json` | random states, one entry for each rank |
| `manifest.json` | versions, and size and checksum of each of these |
"""

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from dynotune.errors import TrainingError
from dynotune.manifest import DamagedError, Manifest, below, seal, versions
from dynotune.train.checkpoints.snapshot import Snapshot
from dynotune.train.checkpoints.weights import TRAINABLE, model_folder, write_model

FORMAT = 2
"""Number of a checkpoint's format."""

STATE, RANDOM, TRAINING = "state.json", "random.json", "training.safetensors"

_LARGEST_JSON = 1 << 30


def write(snapshot: Snapshot, folder: Path) -> Manifest:
    """Write a checkpoint into `folder`, which is made anew; the manifest last. Raises `OSError` and `SafetensorError`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_model(snapshot.model, snapshot.tokenizer, folder / model_folder(snapshot.is_adapter), snapshot.weights)
    if snapshot.is_adapter:
        # PEFT's file holds what inference needs, under PEFT's names. This one holds what was trained, as it was.
        save_file(snapshot.trainable, folder / TRAINABLE)
    if snapshot.training:
        save_file(snapshot.training, folder / TRAINING)
    (folder / STATE).write_text(json.dumps(snapshot.state), encoding="utf-8")
    if snapshot.random:
        random = {"ranks": [json.loads(rank) for rank in snapshot.random]}
        (folder / RANDOM).write_text(json.dumps(random), encoding="utf-8")
    about = {
        "checkpoint_format": FORMAT,
        "step": snapshot.step,
        "ranks": len(snapshot.random),
        "versions": versions(),
    }
    return seal(folder, "checkpoint", about, below(folder))


def read_manifest(path: Path) -> Manifest:
    """The manifest of a checkpoint. Raises `DamagedError`."""
    if not (path / "manifest.json").exists() and (path / STATE).exists():
        raise DamagedError(
            "it has no manifest.json: an earlier version wrote it without checksums, or the file was lost"
        )
    manifest = Manifest.read(path)
    if manifest.kind != "checkpoint":
        raise DamagedError(f"its manifest.json is that of a {manifest.kind}")
    if manifest.about.get("checkpoint_format") != FORMAT:
        raise DamagedError(
            f"it has checkpoint format {manifest.about.get('checkpoint_format')!r}, and this version reads {FORMAT}"
        )
    return manifest


def damage_of(path: Path, *, contents: bool = True) -> list[str]:
    """What is wrong with a checkpoint, a sentence each; empty where it is as it was written."""
    try:
        return read_manifest(path).damage(path, contents=contents)
    except DamagedError as error:
        return [str(error)]


def read_state(path: Path) -> dict[str, Any]:
    """state.json with everything that a resume needs, or an error that names the file."""
    state = _read_json(path / STATE)
    needed = {"resumable": bool, "plan": dict, "settings": dict, "progress": dict}
    missing = [name for name, kind in needed.items() if not isinstance(state.get(name), kind)]
    missing += ["plan.examples_per_step"] if "plan" not in missing and not _counts(state["plan"]) else []
    if missing:
        raise TrainingError(
            f"{path / STATE} lacks {', '.join(missing)}: it was edited, or another version wrote it. Name another"
            " checkpoint."
        )
    return state


def _counts(plan: dict[str, Any]) -> bool:
    examples = plan.get("examples_per_step")
    return type(examples) is int and examples > 0


def read_random(path: Path) -> list[str]:
    """The random states of each rank."""
    ranks = _read_json(path / RANDOM).get("ranks")
    if not isinstance(ranks, list):
        raise TrainingError(f"{path / RANDOM} lacks `ranks`: it was edited. Name another checkpoint.")
    return [json.dumps(rank) for rank in ranks]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise TrainingError(f"{path} is too large to be what we wrote. Name an older checkpoint.")
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TrainingError(f"{path} cannot be read: {error}. Name an older checkpoint.") from error
    if not isinstance(value, dict):
        raise TrainingError(f"{path} holds no JSON object: it was edited. Name an older checkpoint.")
    return value
