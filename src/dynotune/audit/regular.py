"""Opening a file of an audited project: a regular one, for anything else may hang or act when it is opened."""

import os
import stat
from pathlib import Path


class NotRegularError(OSError):
    """A pipe, a socket, a device or a folder."""

    def __init__(self) -> None:
        super().__init__(None, "it is no regular file, but a pipe, a socket, a device or a folder")


def start_of(path: Path, longest: int) -> bytes:
    """The first `longest` bytes. Raises `NotRegularError`, or what else `OSError` says."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  (a device may act when it is opened)
        raise NotRegularError
    # Another file may stand there by now.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotRegularError
        return file.read(longest)


def leaves(path: Path, root: Path) -> bool:
    """Whether `path`, with its links followed, lies outside of `root`."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
