"""What stands on the disk under a name. A thing that cannot be read is named for what it is, never passed over."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from difflib import get_close_matches
from glob import has_magic
from pathlib import Path
from typing import Literal, NoReturn

from dynotune.errors import DataError
from dynotune.printable import printable

Kind = Literal["file", "folder", "absent"]

_WHY = {
    errno.EACCES: "no permission to look at it. Ask for read permission on it and on the folders above it",
    errno.EPERM: "no permission to look at it. Ask for read permission on it and on the folders above it",
    errno.ELOOP: "a symbolic link that leads back to itself",
    errno.ENAMETOOLONG: "longer than a file's name may be",
}

_NO_FILES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(path: Path) -> Kind:
    """Raises `DataError` for what is there and cannot hold data: a pipe, a device, a dead link, a forbidden folder."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            target = printable(str(path.readlink()))
            raise DataError(f"{printable(str(path))}: a link to {target}, which does not exist.") from error
        return "absent"
    except OSError as error:
        _refuse(path, error)
    except ValueError as error:
        raise DataError(f"{printable(str(path))}: no name of a file: {error}.") from error
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    what = _NO_FILES.get(stat.S_IFMT(mode), "no regular file")
    raise DataError(
        f"{printable(str(path))}: {what}. Data is opened more than once, so write it to a file first and name that."
    )


def entries_below(folder: Path) -> Iterator[Path]:
    """Everything in `folder` and the folders in it that is no folder. A sub-folder that is a link is not followed."""

    def refuse(error: OSError) -> NoReturn:
        _refuse(Path(error.filename or folder), error)

    for where, _, names in os.walk(folder, onerror=refuse):
        yield from (Path(where, name) for name in names)


def files_matching(pattern: str) -> list[Path]:
    """The files that a glob matches, sorted."""
    path = Path(pattern).expanduser()
    plain = next((i for i, part in enumerate(path.parts) if has_magic(part)), len(path.parts))
    above = Path(*path.parts[:plain])
    if plain == len(path.parts) or kind_of(above) != "folder":
        return []
    # `glob` passes over folders that it may not read; these two do not.
    if "**" in path.parts:
        for _ in entries_below(above):
            pass
    else:
        listing(above)
    return sorted(file for file in above.glob(str(Path(*path.parts[plain:]))) if kind_of(file) == "file")


def listing(folder: Path) -> list[str]:
    """The names in a folder."""
    try:
        return [entry.name for entry in folder.iterdir()]
    except OSError as error:
        _refuse(folder, error)


def nearest(path: Path) -> str:
    """A sentence with the names beside `path` that look like it."""
    folder = path.parent
    if kind_of(folder) != "folder":
        return f" The folder {printable(str(folder))} does not exist."
    near = get_close_matches(path.name, listing(folder), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(printable(str(folder / name)) for name in near)}?" if near else ""


def _refuse(path: Path, error: OSError) -> NoReturn:
    why = _WHY.get(error.errno or 0) or error.strerror or str(error)
    raise DataError(f"{printable(str(path))}: {why}.") from error
