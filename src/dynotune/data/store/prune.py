"""Removing stores: those that nobody took for long, that were never finished, or that no version can read."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from dynotune.data.store.in_use import is_in_use
from dynotune.data.store.layout import DTYPES, MANIFEST, QUARANTINE, DamagedError, Manifest

LOCK = ".lock"
"""Whoever builds a data set's stores holds this file's lock."""

BUILDING = ".building-"
DISCARDED = ".discarded-"

_DAY = 86_400.0

_DATA_SET = re.compile(r".+-[0-9a-f]{16}")
_STORE = re.compile(r"[0-9a-f]{20}")
_FILES = {*DTYPES, MANIFEST, QUARANTINE, "used"}
"""Names as `obtain` gives them. A cache may lie in a folder that holds other things, even a home folder."""


def is_building(folder: Path) -> bool:
    """Whether a folder's name says that it is no finished store."""
    return folder.name.startswith(".")


@dataclass(frozen=True)
class Pruned:
    """One folder that pruning looked at and removed, or kept for a reason that should be known."""

    path: Path
    bytes: int
    why: str
    removed: bool = True


def prune(cache: Path, days: float, *, now: float | None = None) -> list[Pruned]:
    """Remove stores below `cache` that were not taken for `days`, unfinished ones, and damaged ones.

    Only folders of this user with the names and files of stores, never one that a process has open, and never through a
    link. Returns what was done.
    """
    now = time.time() if now is None else now
    done: list[Pruned] = []
    for data_set in _own_folders(cache):
        if not _DATA_SET.fullmatch(data_set.name):
            continue
        with _nobody_builds(data_set) as alone:
            for folder in _own_folders(data_set):
                why = _why(folder, days, now)
                if why is None:
                    continue
                if is_in_use(folder) or (folder.name.startswith(BUILDING) and not alone):
                    done.append(Pruned(folder, 0, f"{why}, but in use", removed=False))
                    continue
                size = _size(folder)
                done.append(Pruned(folder, size, why, removed=remove(folder)))
            if alone:
                with contextlib.suppress(OSError):
                    if {path.name for path in data_set.iterdir()} <= {LOCK}:
                        (data_set / LOCK).unlink(missing_ok=True)
                        data_set.rmdir()
    return done


@contextlib.contextmanager
def _nobody_builds(data_set: Path) -> Iterator[bool]:
    """Yields whether that is sure: then nobody begins to, either, until the end."""
    lock = FileLock(data_set / LOCK, mode=0o600)
    try:
        lock.acquire(timeout=0)
    except (OSError, NotImplementedError):  # somebody has it, or there are no locks here
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def remove(folder: Path) -> bool:
    """Delete a store. It is renamed first, so that nobody takes half of one. False where it could not be."""
    hidden = folder.with_name(f"{DISCARDED}{os.getpid()}-{os.urandom(4).hex()}")
    try:
        if folder.is_symlink():
            folder.unlink()
            return True
        folder.rename(hidden)
    except OSError:
        return False
    shutil.rmtree(hidden, ignore_errors=True)  # removes links, never what they lead to
    return not hidden.exists()


def stale_buildings(folder: Path, *, locked: bool) -> None:
    """Remove what builders left that were killed. `locked`: this process alone builds here, so nobody else is at it."""
    for left in _own_folders(folder):
        if left.name.startswith((BUILDING, DISCARDED)) and (locked or not _is_being_built(left)):
            shutil.rmtree(left, ignore_errors=True)


def _why(folder: Path, days: float, now: float) -> str | None:
    if not _holds_only_a_store(folder):
        return None
    if folder.name.startswith((BUILDING, DISCARDED)):
        return "never finished"
    if not _STORE.fullmatch(folder.name):
        return None
    try:
        Manifest.read(folder)
    except DamagedError as error:
        return f"damaged: {error}"
    except OSError:
        return "no store"
    used = folder / "used"
    last = (used if used.exists() else folder / MANIFEST).stat().st_mtime
    unused = (now - last) / _DAY
    return f"not used for {unused:.0f} days" if unused >= days else None


def _holds_only_a_store(folder: Path) -> bool:
    """Whether nothing is there that is not a store's; links go with it, never what they lead to."""
    try:
        return all(
            path.is_symlink() or path.name in _FILES or path.name.startswith(f".{MANIFEST}.")
            for path in folder.iterdir()
        )
    except OSError:
        return False


def _is_being_built(folder: Path) -> bool:
    """Whether something was written there within a day: more than any chunk takes."""
    try:
        newest = max((path.stat().st_mtime for path in folder.iterdir()), default=folder.stat().st_mtime)
    except OSError:
        return True
    return time.time() - newest < _DAY


def _own_folders(parent: Path) -> list[Path]:
    """Sub-folders that belong to this user and are no links."""
    found = []
    try:
        entries = sorted(parent.iterdir())
    except OSError:
        return []
    user = os.getuid() if hasattr(os, "getuid") else None
    for path in entries:
        try:
            state = path.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(state.st_mode) and user in (None, state.st_uid):
            found.append(path)
    return found


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
