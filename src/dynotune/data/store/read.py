"""Opening a store: checked, then mapped into memory or read into it."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynotune.data.examples import Examples
from dynotune.data.places import Places
from dynotune.data.store.in_use import hold
from dynotune.data.store.layout import (
    DTYPES,
    FILE_NUMBERS,
    IDS,
    LABELS,
    LINES,
    MANIFEST,
    OFFSETS,
    QUARANTINE,
    DamagedError,
    Manifest,
)
from dynotune.data.store.write import checksum_of

CHECKED_WHOLE = 4 << 30
"""Bytes up to which every byte of a store is checked when it is opened: under a second where the system holds the file in
memory. Of a larger one the token arrays are checked by `prepare --verify` alone, and everything else is."""


def open_store(folder: Path, manifest: Manifest, *, in_memory: bool, verify: bool = False) -> Examples:
    """The examples of a store. `verify` checks every byte whatever the size.

    Raises `DamagedError` where a file is missing, is no regular file, or is not as long or not as its checksum says; and
    `OSError` where it cannot be read.
    """
    check(folder, manifest, verify=verify)
    ids = _array(folder, IDS, manifest, in_memory)
    labels = _array(folder, LABELS, manifest, in_memory) if manifest.labels_stored else ids
    offsets, numbers, lines = (_array(folder, name, manifest, in_memory) for name in (OFFSETS, FILE_NUMBERS, LINES))
    if offsets[0] != 0 or offsets[-1] != manifest.tokens or (offsets[1:] < offsets[:-1]).any():
        raise DamagedError(f"{OFFSETS} does not ascend from 0 to the number of tokens")
    if manifest.rows and not (numbers.min() >= 0 and numbers.max() < len(manifest.files)):
        raise DamagedError(f"{FILE_NUMBERS} names files that are not in {MANIFEST}")
    examples = Examples(
        ids, labels, offsets, Places(manifest.files, numbers, lines), manifest.digest, manifest.per_example
    )
    if not in_memory and (release := hold(folder)) is not None:
        weakref.finalize(ids.base if isinstance(ids.base, np.memmap) else examples, release)
    return examples


def check(folder: Path, manifest: Manifest, *, verify: bool) -> None:
    """Raises `DamagedError` where a file is not what the manifest says."""
    sizes = manifest.sizes()
    whole = verify or sum(sizes.values()) <= CHECKED_WHOLE
    for name in (*sizes, QUARANTINE):
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise DamagedError(f"{name} is missing" if not path.is_symlink() else f"{name} is a link")
        size = path.stat().st_size
        if size != sizes.get(name, size):
            raise DamagedError(f"{name} has {size:,} bytes instead of {sizes[name]:,}")
        if (whole or name not in (IDS, LABELS)) and checksum_of(path) != manifest.checksums[name]:
            raise DamagedError(f"{name} differs from its checksum")


def checked_whole(manifest: Manifest) -> bool:
    """Whether opening this store checks every byte."""
    return sum(manifest.sizes().values()) <= CHECKED_WHOLE


def _array(folder: Path, name: str, manifest: Manifest, in_memory: bool) -> NDArray[Any]:
    count = manifest.sizes()[name] // DTYPES[name].itemsize
    if not count:
        return np.zeros(0, DTYPES[name])
    if in_memory:
        array = np.fromfile(folder / name, DTYPES[name], count)
        if len(array) != count:
            raise DamagedError(f"{name} is too short")
        return array
    # Copy on write: the file is never changed, and PyTorch takes the array without a warning about read-only memory.
    mapped = np.memmap(folder / name, DTYPES[name], "c", shape=(count,))
    return mapped.view(np.ndarray)


def append_quarantine(folder: Path, path: Path) -> None:
    """Write the store's refused rows to a run's quarantine, as building them did."""
    with (folder / QUARANTINE).open("rb") as stored:
        first = stored.read(1 << 20)
        if not first:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        with os.fdopen(handle, "ab") as run:
            run.write(first)
            while piece := stored.read(1 << 20):
                run.write(piece)
