"""The manifest of a run folder: sealed at the start, after every checkpoint and at the end, so that what lies is noticed.

It covers what Dynotune itself writes at the top of the folder and the final model or adapter. Checkpoints have manifests
of their own; trackers' folders and logs are theirs. Lines are added to the `.jsonl` files while a run goes on: of these it
covers what was there when it was sealed.
"""

import json
from pathlib import Path
from typing import Any

from dynotune.manifest import MANIFEST, DamagedError, Manifest, below, seal, versions

GROWING = ("metrics.jsonl", "samples.jsonl", "metrics.repeated.jsonl", "quarantine.jsonl", "warnings.jsonl")
"""Files that get longer while a run goes on."""

MODELS = ("model", "adapter")


def seal_run(folder: Path, names: tuple[str, ...], about: dict[str, Any], done: bool) -> Manifest:
    """Write the manifest of those of the files `names` that are there, and, where the run is `done`, of the final model.

    Raises `OSError`.
    """
    files = [path for name in names if (path := folder / name).is_file()]
    files += [path for name in MODELS if done for path in below(folder / name) if path.name != ".lock"]
    return seal(folder, "run", {**about, "done": done, "versions": versions()}, files, () if done else GROWING)


def damage_of_run(folder: Path) -> list[str]:
    """What in a run folder is not as it was written, checkpoints apart; a sentence each."""
    try:
        manifest = Manifest.read(folder)
    except DamagedError as error:
        return [str(error)]
    if manifest.kind != "run":
        return [f"{MANIFEST} is that of a {manifest.kind}"]
    wrong = manifest.damage(folder)
    for name, entry in manifest.files.items():
        if entry.grows and not any(said.startswith(f"{name} ") for said in wrong):
            wrong += _torn_lines(folder / name, entry.size)
    return wrong


def _torn_lines(path: Path, sealed: int) -> list[str]:
    """Lines behind what was sealed that are no JSON object. The last one may be torn by a kill."""
    with path.open("rb") as file:
        file.seek(sealed)
        lines = file.read().split(b"\n")
    wrong = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            whole = isinstance(json.loads(line), dict)
        except (ValueError, RecursionError):
            whole = False
        if not whole:
            wrong.append(f"{path.name} has a line that is no JSON object, number {number} behind its last seal")
    return wrong
