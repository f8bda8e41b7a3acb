"""The address of a Unix socket in a folder with any name: the system takes about a hundred bytes, and clusters give longer
folders for what is temporary."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST = 100
"""Bytes. Linux takes 107, others 103."""


@contextmanager
def address(path: Path) -> Iterator[str]:
    """By which `path` can be bound or connected to inside: where it is too long, through its folder's descriptor."""
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
