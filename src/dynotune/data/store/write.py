"""Writing a store: into a folder beside the others under another name, which becomes a store by being renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from dynotune.data.account.quarantine import Quarantine
from dynotune.data.chunk import Tokens
from dynotune.data.examples import IGNORE, digest_of
from dynotune.data.ingest import Memory
from dynotune.data.places import Places
from dynotune.data.rows import BadRow
from dynotune.data.store.layout import DTYPES, FILE_NUMBERS, IDS, LABELS, LINES, MANIFEST, OFFSETS, QUARANTINE, Manifest

_COPY = 1 << 22


class StoreWriter:
    """A sink that writes tokens to `folder`, which it makes, and from the first failure on keeps them in memory."""

    def __init__(self, folder: Path, quarantine: Quarantine | None, per_example: int = 1) -> None:
        """`quarantine`: the run's own, which gets refused rows at once. Raises `OSError` where nothing can be written."""
        folder.mkdir(mode=0o700)
        self.folder, self.quarantine = folder, quarantine
        self.memory = Memory(None, per_example)
        self.failure: str | None = None
        """Why the tokens are kept in memory."""
        self.rows = self.tokens = self.label_tokens = 0
        self.table: dict[str, int] = {}
        self._own = Quarantine(folder / QUARANTINE)
        self._ends = xxhash.xxh3_128()
        try:
            self._files = {name: _File(folder / name) for name in (IDS, OFFSETS, FILE_NUMBERS, LINES)}
            self._files[OFFSETS].write(np.zeros(1, np.int64))
        except OSError:
            self.discard()
            raise

    def refuse(self, bad: BadRow, values: Mapping[str, Any] | None) -> None:
        if self.quarantine is not None:
            self.quarantine.write(bad, values)
        if self.failure is None:
            try:
                self._own.write(bad, values)
            except OSError as error:
                self.give_up(f"it could not be written to the end ({error.strerror or error})")

    def add(self, tokens: Tokens) -> None:
        if self.failure is None:
            try:
                self._write(tokens)
            except OSError as error:
                self.give_up(f"it could not be written to the end ({error.strerror or error})")
            else:
                return
        self.memory.add(tokens)

    def _write(self, tokens: Tokens) -> None:
        """All of it or, as far as `self.rows` and `self.tokens` tell, nothing."""
        if tokens.labels is not None and LABELS not in self._files:
            self._files[LABELS] = _File(self.folder / LABELS)
            self._files[LABELS].copy(self.folder / IDS)
        ends = np.cumsum(tokens.lengths) + self.tokens
        self._files[IDS].write(tokens.ids)
        if LABELS in self._files:
            self._files[LABELS].write(tokens.ids if tokens.labels is None else tokens.labels)
        self._files[OFFSETS].write(ends)
        self._files[FILE_NUMBERS].write(tokens.places.renumbered(self.table))
        self._files[LINES].write(tokens.places.lines)
        self._ends.update(np.ascontiguousarray(ends, "<i8").data)
        self.rows, self.tokens = self.rows + len(tokens.lengths), self.tokens + len(tokens.ids)
        self.label_tokens += label_tokens(tokens)

    def give_up(self, why: str) -> None:
        """Take back into memory what was written: the files have it, and a full disk can be read."""
        self.failure = why

        def back(name: str, count: int) -> NDArray[Any]:
            return np.fromfile(self.folder / name, DTYPES[name], count)

        if self.rows:
            lengths = np.diff(back(OFFSETS, self.rows + 1))
            places = Places(list(self.table), back(FILE_NUMBERS, self.rows), back(LINES, self.rows))
            has_labels = (self.folder / LABELS).exists() and (self.folder / LABELS).stat().st_size >= 4 * self.tokens
            labels = back(LABELS, self.tokens) if has_labels else None
            self.memory.add(Tokens(back(IDS, self.tokens), labels, lengths, places))
        self.discard()

    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row that was written [rows]."""
        return np.diff(np.fromfile(self.folder / OFFSETS, DTYPES[OFFSETS], self.rows + 1))

    def finish(self, manifest: Manifest, place: Path) -> bool:
        """Complete the manifest, make everything durable, and rename the folder to `place`.

        False where it failed: then `failure` says why, and `memory` holds the tokens.
        """
        try:
            if not (self.folder / QUARANTINE).exists():
                (self.folder / QUARANTINE).touch(mode=0o600)
            manifest.checksums = {name: file.checksum.hexdigest() for name, file in self._files.items()}
            manifest.checksums[QUARANTINE] = checksum_of(self.folder / QUARANTINE)
            labels = self._files.get(LABELS, self._files[IDS])
            manifest.digest = digest_of(
                self._files[IDS].checksum.digest(), labels.checksum.digest(), self._ends.digest()
            )
            for file in self._files.values():
                file.close()
            (self.folder / MANIFEST).write_bytes(manifest.to_bytes())
            for name in (MANIFEST, QUARANTINE):
                (self.folder / name).chmod(0o600)
                _sync(self.folder / name)
            _sync(self.folder)
            self.folder.rename(place)
            _sync(place.parent)
        except OSError as error:
            if place.exists() and not self.folder.exists():  # renamed; only the sync of the parent failed
                return True
            self.give_up(f"it could not be written to the end ({error.strerror or error})")
            return False
        return True

    def discard(self) -> None:
        """Remove what was written."""
        for file in getattr(self, "_files", {}).values():
            file.abandon()
        shutil.rmtree(self.folder, ignore_errors=True)


class _File:
    """An array that grows, with a checksum of what was written."""

    def __init__(self, path: Path) -> None:
        self.path, self.dtype = path, DTYPES[path.name]
        self.checksum = xxhash.xxh3_128()
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def write(self, array: NDArray[Any]) -> None:
        self._write(np.ascontiguousarray(array, self.dtype).data.cast("B") if len(array) else memoryview(b""))

    def copy(self, other: Path) -> None:
        with other.open("rb") as file:
            while piece := file.read(_COPY):
                self._write(memoryview(piece))

    def _write(self, bytes_: memoryview) -> None:
        self.checksum.update(bytes_)
        while bytes_:
            bytes_ = bytes_[os.write(self._handle, bytes_) :]

    def close(self) -> None:
        os.fsync(self._handle)
        self.abandon()

    def abandon(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


def label_tokens(tokens: Tokens) -> int:
    """Tokens that carry loss: a label on an example's first token does not."""
    labels = tokens.ids if tokens.labels is None else tokens.labels
    labelled = labels != IGNORE
    first = (np.cumsum(tokens.lengths) - tokens.lengths)[tokens.lengths > 0]
    return int(np.count_nonzero(labelled)) - int(np.count_nonzero(labelled[first]))


def checksum_of(path: Path) -> str:
    """XXH3-128 of a file."""
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_COPY):
            digest.update(piece)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
