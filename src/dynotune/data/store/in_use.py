"""Whether somebody has a store open: a shared lock on its ids, which ends with the process that holds it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from dynotune.data.store.layout import IDS

HAS_LOCKS = sys.platform != "win32"
"""On Windows a mapped file cannot be deleted anyway."""

if HAS_LOCKS:
    import fcntl


def hold(folder: Path) -> Callable[[], None] | None:
    """Mark the store as open. Returns what ends that; None where the file system has no locks."""
    if not HAS_LOCKS:
        return None
    try:
        handle = os.open(folder / IDS, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return lambda: os.close(handle)


def is_in_use(folder: Path) -> bool:
    """Whether some process has the store open."""
    if not HAS_LOCKS:
        return False
    try:
        handle = os.open(folder / IDS, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no locks on this file system, so nobody holds one
        return False
    finally:
        os.close(handle)
    return False
