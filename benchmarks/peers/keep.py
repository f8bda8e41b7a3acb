"""What was measured of a row so far: `peers-ROW.json`, written whole after each arm, so that an interruption loses one arm.

An arm is known by its key: all that its figures depend on, from the commit and the machine to the settings. The same key is
not measured twice. Memory that ran out is a result; whatever else failed is tried again.
"""

import hashlib
import importlib.metadata as metadata
import json
import platform
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peers.rows import ROWS
from benchmarks.whole_file import write_json

ROOT = Path(__file__).parents[2]
PACKAGES = ("torch", "transformers", "peft", "trl", "liger-kernel", "unsloth")
RESULTS = ":!benchmarks/results"
"""No part of what is measured: results may be written into the tree."""

DIRTY = "+changes"
"""Behind a commit whose tree was changed: what is measured so cannot be found again, and is never taken for done."""


def commit_of_tree() -> str:
    """Of the checkout. Raises `SystemExit` where there is none."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        changed = ["git", "status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks", RESULTS]
        dirty = subprocess.run(changed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit("This is no git checkout: name its commit with --commit.") from error
    return head.strip() + (DIRTY if dirty.strip() else "")


def provenance(row: str, commit: str, stand_in: bool) -> dict[str, Any]:
    """Of an arm that is measured here and now, without a folder or a name of its user.

    `host` tells two machines, or two starts of one, apart: arms of a row are compared within one.
    """
    import torch

    boot = Path("/proc/sys/kernel/random/boot_id")
    started = boot.read_text(encoding="ascii") if boot.is_file() else platform.node()
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "command": f"python -m benchmarks.peers --row {row} --shared SHARED --out OUT"
        + (" --flash-attn STANDIN" if stand_in else ""),
        "commit": commit,
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "host": hashlib.sha256(started.encode()).hexdigest()[:12],
        "versions": versions,
        "flash_attn": "stand-in over PyTorch's own FlashAttention-2" if stand_in else "as installed",
    }


def settings_of(row: str, arm: str, dry: bool = False) -> dict[str, Any]:
    """All of the row and of the arm that decides what is measured."""
    whole = asdict(ROWS[row])
    del whole["arms"], whole["holds"]
    if whole["epoch"] == 4000:  # as it was for all rows before there was a choice
        del whole["epoch"]
    return {**whole, "arm": dict(ROWS[row].arms[arm].settings), "dry": dry}


def key_of(origin: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Changes with whatever the figures depend on; not with the order of keys, nor with the command's words."""
    parts = {"provenance": {k: v for k, v in origin.items() if k != "command"}, "settings": settings}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class Kept:
    """The file of one row in a folder."""

    def __init__(self, folder: Path, row: str) -> None:
        self.row = row
        self.path = folder / f"peers-{row}.json"
        self.arms: dict[str, dict[str, Any]] = {}
        if self.path.is_file():
            self.arms = json.loads(self.path.read_text(encoding="utf-8"))["arms"]

    def done(self, arm: str, key: str, commit: str) -> bool:
        """Whether the arm was measured under this key, or is known not to fit into memory."""
        one = self.arms.get(arm)
        if one is None or one["key"] != key or commit.endswith(DIRTY):
            return False
        return "failed" not in one["result"] or out_of_memory(one["result"]["failed"])

    def put(self, arm: str, key: str, origin: Mapping[str, Any], settings: Any, result: Mapping[str, Any]) -> None:
        """Beside the others in the order of the row. Arms of another commit or machine go: they are not compared."""
        same = ("commit", "hardware", "host", "versions", "flash_attn")
        stay = {n: a for n, a in self.arms.items() if all(a["provenance"].get(s) == origin.get(s) for s in same)}
        stay[arm] = {"key": key, "provenance": dict(origin), "settings": settings, "result": result}
        self.arms = {name: stay[name] for name in ROWS[self.row].arms if name in stay}
        write_json(self.path, {"row": self.row, "arms": self.arms})


def out_of_memory(error: str) -> bool:
    return "OutOfMemoryError" in error or "out of memory" in error


def without_folders(text: str, folders: Mapping[str, Path | None]) -> str:
    """The text with a word for each folder of the user."""
    known = {**folders, "TMP": Path(tempfile.gettempdir()), "TREE": ROOT, "HOME": Path.home()}
    for word, folder in known.items():
        if folder is not None and folder != Path("/"):
            text = text.replace(str(folder), word)
    return text
