"""`dynotune verify`: whether what Dynotune wrote is still, to the byte, what it wrote."""

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynotune.errors import ConfigError
from dynotune.manifest import MANIFEST, DamagedError, Manifest, below
from dynotune.printable import printable
from dynotune.train.checkpoints.contents import damage_of
from dynotune.train.folder.run_manifest import damage_of_run

STORE_FILE = "ids.i32"
"""What makes a folder with a manifest a token store."""


@dataclass(slots=True)
class Verified:
    """What was found in one folder."""

    folder: Path
    parts: dict[str, list[str]] = field(default_factory=dict)
    """For each part that was checked, what is wrong with it."""

    notes: list[str] = field(default_factory=list)
    bytes: int = 0
    seconds: float = 0.0

    @property
    def whole(self) -> bool:
        return not any(self.parts.values())

    def lines(self) -> list[str]:
        """For people."""
        said = []
        for part, wrong in self.parts.items():
            said.append(f"{part}: {'as it was written' if not wrong else f'DAMAGED, {len(wrong)} found'}")
            said += [f"  {printable(sentence)}" for sentence in wrong]
        said += [f"note: {printable(note)}" for note in self.notes]
        return [*said, f"{self.bytes:,} bytes read in {self.seconds:.2f} s"]

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "whole": self.whole,
            "parts": self.parts,
            "notes": self.notes,
            "bytes": self.bytes,
            "seconds": self.seconds,
        }


def verify(folder: Path) -> Verified:
    """Check every byte of a run folder with its checkpoints, of one checkpoint, of a merged model or of a token store.

    Raises `ConfigError` where the folder is none of these.
    """
    began, found = time.perf_counter(), Verified(folder)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder. Name a run folder, a checkpoint, a merged model or a token store.")
    checkpoints = sorted(p for p in folder.glob("checkpoints/*step-*") if re.fullmatch(r"(\w+-)?step-\d+", p.name))
    if (folder / STORE_FILE).is_file():
        _store(found)
    elif re.fullmatch(r"(\w+-)?step-\d+", folder.name) and folder.parent.name == "checkpoints":
        _checkpoint(found, folder, folder.name)
    elif (folder / MANIFEST).is_file() and not checkpoints and _kind(folder) in ("checkpoint", "model"):
        _of_its_manifest(found)
    elif checkpoints or (folder / MANIFEST).is_file() or (folder / "plan.json").is_file():
        _run(found, checkpoints)
    else:
        where = f" {folder.parent} is: verify that." if (folder.parent / MANIFEST).is_file() else ""
        raise ConfigError(f"{folder} has no {MANIFEST}, so nothing tells what it held.{where}")
    found.seconds = time.perf_counter() - began
    return found


def _kind(folder: Path) -> str:
    try:
        return Manifest.read(folder).kind
    except DamagedError:
        return "checkpoint" if (folder / "state.json").is_file() else ""


def _run(found: Verified, checkpoints: list[Path]) -> None:
    found.parts["run"] = damage_of_run(found.folder)
    try:
        manifest = Manifest.read(found.folder)
    except DamagedError:
        pass  # said already
    else:
        found.bytes += manifest.total_bytes
        if not manifest.about.get("done"):
            found.notes.append(
                "the run has not ended: no final model, and .jsonl files are checked up to the last seal"
            )
    for path in checkpoints:
        name = path.relative_to(found.folder).as_posix()
        if path.name.startswith("damaged-"):
            found.notes += [f"{name}, which a resume set aside, is damaged: {said}" for said in damage_of(path)]
        else:
            _checkpoint(found, path, name)


def _checkpoint(found: Verified, path: Path, name: str) -> None:
    found.parts[name] = damage_of(path)
    if not found.parts[name]:
        manifest = Manifest.read(path)
        found.bytes += manifest.total_bytes
        _foreign(found, path, manifest)


def _foreign(found: Verified, path: Path, manifest: Manifest) -> None:
    """Files that were not written with the others: nothing is known of them."""
    for one in sorted(below(path)):
        if one.relative_to(path).as_posix() not in manifest.files:
            found.notes.append(f"{one.relative_to(found.folder.parent)} is in no manifest: it was put there afterwards")


def _of_its_manifest(found: Verified) -> None:
    if _kind(found.folder) == "checkpoint":
        _checkpoint(found, found.folder, found.folder.name)
        return
    manifest = Manifest.read(found.folder)
    found.parts[manifest.kind] = manifest.damage(found.folder)
    found.bytes += manifest.total_bytes
    _foreign(found, found.folder, manifest)


def _store(found: Verified) -> None:
    from dynotune.data.store.layout import DamagedError as DamagedStoreError
    from dynotune.data.store.layout import Manifest as StoreManifest
    from dynotune.data.store.read import check

    try:
        manifest = StoreManifest.read(found.folder)
        check(found.folder, manifest, verify=True)
    except (DamagedStoreError, OSError) as error:
        found.parts["token store"] = [str(error)]
    else:
        found.parts["token store"] = []
        found.bytes += sum(manifest.sizes().values())
