"""What a source holds, told by the state of its files first, and by their bytes where that state has changed."""

from __future__ import annotations

import marshal
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from dynotune.printable import printable

_READ = 4 << 20

_SETTLED = 2_000_000_000
"""Nanoseconds. A file that changed so shortly before it was looked at may change again within one tick of its clock."""

_SCALARS = {str, int, float, bool, type(None)}
_DEEPEST = 100


@dataclass(frozen=True)
class FileState:
    """What `stat` says of a file, and the BLAKE2b of its bytes. Times are nanoseconds."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    looked_at_ns: int
    hash: str = ""

    @classmethod
    def of(cls, path: Path) -> Self:
        """Raises `OSError` where the file cannot be looked at."""
        state, looked_at = path.stat(), time.time_ns()
        return cls(str(path), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, looked_at)

    def is_still(self, now: FileState) -> bool:
        """Whether the file is surely as it was when this state was noted."""
        settled = max(self.mtime_ns, self.ctime_ns) < self.looked_at_ns - _SETTLED
        return settled and self._identity == now._identity

    def is_untouched(self, now: FileState) -> bool:
        """Whether nothing speaks of a change; unlike `is_still`, true of a file that was written just before."""
        return self._identity == now._identity

    @property
    def _identity(self) -> tuple[str, int, int, int, int]:
        return self.path, self.size, self.mtime_ns, self.ctime_ns, self.inode


@dataclass
class Contents:
    """What one or several sources hold: files in order, and a text for what is no file."""

    files: list[Path] = field(default_factory=list)
    text: str = ""
    unknown: str = ""
    """Why it cannot be told whether the contents change; empty where it can."""

    @cached_property
    def states(self) -> list[FileState]:
        """The files as they are now, without their hashes."""
        return [FileState.of(path) for path in self.files]

    @cached_property
    def hashed(self) -> list[FileState]:
        """The files with their hashes. Reads every byte."""
        return [FileState(**{**state.__dict__, "hash": _hash_of(Path(state.path))}) for state in self.states]

    def changed_since(self) -> str | None:
        """The name of a file that is no longer as `states` found it."""
        for then in self.states:
            try:
                if not then.is_untouched(FileState.of(Path(then.path))):
                    return printable(then.path)
            except OSError:
                return printable(then.path)
        return None

    def difference(self, known: Sequence[FileState], known_text: str) -> str | None:
        """What differs from the contents that a store was made of, or None. Hashes only files whose state changed."""
        before, now = [state.path for state in known], [state.path for state in self.states]
        if before != now:
            added, gone = [p for p in now if p not in before], [p for p in before if p not in now]
            told = [f"{_names(added)} added"] * bool(added) + [f"{_names(gone)} gone"] * bool(gone)
            return ", ".join(told) or "the order of the files"
        if self.text != known_text:
            return "the rows themselves"
        if all(then.is_still(state) for then, state in zip(known, self.states, strict=True)):
            return None
        if any(then.size != state.size for then, state in zip(known, self.states, strict=True)):
            changed = [s.path for then, s in zip(known, self.states, strict=True) if then.size != s.size]
            return _names(changed)
        changed = [s.path for then, s in zip(known, self.hashed, strict=True) if then.hash != s.hash]
        return _names(changed) if changed else None

    @classmethod
    def joined(cls, parts: Iterable[Contents]) -> Self:
        """Those of several sources, one after the other."""
        whole = cls()
        for part in parts:
            whole.files += part.files
            whole.text += f"{part.text}\n" if part.text else ""
            whole.unknown = whole.unknown or part.unknown
        return whole


def rows_text(rows: Any, name: str) -> Contents:
    """The contents of rows that a Python user passed: a hash of their values, if plain values are all they hold."""
    if not isinstance(rows, list | tuple):
        return Contents(unknown=f"{name} is {type(rows).__name__}, whose rows may be others when they are read again")
    digest = blake2b(digest_size=20)
    for row in rows:
        if not _is_plain(row):
            return Contents(unknown=f"{name} holds values that are no plain Python values")
        # Version 2 writes equal values as equal bytes. Only hashed, never read back.
        digest.update(marshal.dumps(row, 2))
    return Contents(text=f"{len(rows)} rows {digest.hexdigest()}")


def _is_plain(value: Any, depth: int = 0) -> bool:
    kind = type(value)
    if kind in _SCALARS:
        return True
    if depth > _DEEPEST:
        return False
    if kind is list or kind is tuple:
        return set(map(type, value)) <= _SCALARS or all(_is_plain(item, depth + 1) for item in value)
    return kind is dict and set(map(type, value)) <= _SCALARS and _is_plain(list(value.values()), depth + 1)


def _hash_of(path: Path) -> str:
    digest = blake2b(digest_size=20)
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while piece := file.read(_READ):
            digest.update(piece)
    return digest.hexdigest()


def _names(paths: Sequence[str]) -> str:
    shown = ", ".join(printable(path) for path in paths[:3])
    return shown + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
