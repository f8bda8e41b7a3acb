"""Folders that are there whole or not at all: made beside their place, flushed to the disk, renamed.

A crash at any moment leaves the old folder, the new one, or one of them under a name that `recover` gives back.
"""

import os
import shutil
from pathlib import Path


def put_in_place(new: Path, target: Path) -> None:
    """Rename a finished folder to its place. One that stands there steps aside first, so that no moment loses both."""
    old = _aside(target)
    flush(new)
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    new.rename(target)
    _flush_entry(target.parent)
    _flush_entry(target.parent.parent)  # where a run's first checkpoint has made the folder around it, too
    shutil.rmtree(old, ignore_errors=True)


def remove(folder: Path) -> None:
    """Remove a folder so that half of it is never taken for the whole: it loses its name first."""
    gone = folder.with_name(f".{folder.name}.gone")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    shutil.rmtree(gone)


def recover(parent: Path) -> None:
    """Give folders their names back that a crash caught between the two renames, and clear what was half made."""
    for old in parent.glob(".*.old"):
        target = parent / old.name.removeprefix(".").removesuffix(".old")
        if target.exists():
            shutil.rmtree(old)
        else:
            old.rename(target)
    for rest in [*parent.glob(".*.half"), *parent.glob(".*.gone")]:
        shutil.rmtree(rest)


def flush(folder: Path) -> None:
    """Write every file of a folder through to the disk: a rename must not reach it before the contents do."""
    for path in [*folder.rglob("*"), folder]:
        _flush_entry(path)


def _flush_entry(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")
