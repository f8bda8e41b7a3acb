"""The files of a store and their manifest.

A store is a folder of flat little-endian arrays, the rows that were refused, and `manifest.json`, which is written last. The
manifest names no file: names are fixed here, and sizes follow from two counts, so that a manifest from elsewhere cannot
make anybody read outside its folder or beyond a file's end.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self, get_type_hints

import numpy as np
from pydantic import TypeAdapter

from dynotune.data.sources.contents import FileState

FORMAT = 1
"""Number of the format. A store of another number is never read."""

MANIFEST, QUARANTINE = "manifest.json", "quarantine.jsonl"

IDS, LABELS, OFFSETS, FILE_NUMBERS, LINES = "ids.i32", "labels.i32", "offsets.i64", "file_numbers.i32", "lines.i64"

DTYPES: dict[str, np.dtype[Any]] = {
    IDS: np.dtype("<i4"),
    LABELS: np.dtype("<i4"),
    OFFSETS: np.dtype("<i8"),
    FILE_NUMBERS: np.dtype("<i4"),
    LINES: np.dtype("<i8"),
}

_LARGEST_COUNT = 1 << 48
_LARGEST_MANIFEST = 1 << 30


class DamagedError(Exception):
    """A store that is not what its manifest says. The message says where, for people."""


@dataclass
class Manifest:
    """What is known of a store without reading its arrays."""

    rows: int
    tokens: int
    label_tokens: int
    labels_stored: bool
    """False where every label is its token's id, so that the ids serve as labels."""

    files: list[str]
    """The data's files as places name them."""

    parts: dict[str, str]
    """The fingerprint: a digest for each thing that decides what the tokens are."""

    contents: list[dict[str, Any]]
    """State and hash of each source file."""

    contents_text: str
    account: dict[str, Any]
    """Ledger, format and the encoder's notices."""

    statements: list[str]
    digest: str
    """`Examples.digest` of the whole."""

    checksums: dict[str, str]
    """XXH3-128 of each file, in hexadecimal."""

    about: dict[str, Any] = field(default_factory=dict)
    """For people: the length histogram, how well the data packs, versions, when it was built."""

    per_example: int = 1
    """2 where rows are the sides of pairs, chosen and rejected in turn."""

    format: int = FORMAT

    def sizes(self) -> dict[str, int]:
        """Bytes that each array's file must have."""
        items = {IDS: self.tokens, OFFSETS: self.rows + 1, FILE_NUMBERS: self.rows, LINES: self.rows}
        if self.labels_stored:
            items[LABELS] = self.tokens
        return {name: count * DTYPES[name].itemsize for name, count in items.items()}

    def to_bytes(self) -> bytes:
        """JSON, with a checksum of all the rest as its last key."""
        body = asdict(self)
        return json.dumps({**body, "checksum": _checksum(body)}, indent=1).encode() + b"\n"

    def replace(self, folder: Path) -> None:
        """Write the manifest of a finished store anew, whole or not at all. Raises `OSError`."""
        beside = folder / f".{MANIFEST}.{os.getpid()}"
        beside.write_bytes(self.to_bytes())
        beside.chmod(0o600)
        beside.replace(folder / MANIFEST)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises `DamagedError` where it is not one, and `FileNotFoundError` where there is none."""
        text = _read_regular(folder / MANIFEST)
        try:
            body = json.loads(text)
            checksum = body.pop("checksum")
            if body["format"] != FORMAT:
                raise DamagedError(f"it has format {body['format']}, and this version reads {FORMAT}")
            if checksum != _checksum(body):
                raise DamagedError(f"{MANIFEST} differs from its own checksum")
            manifest = cls(**body)
            # Whoever can write a manifest can write its checksum.
            for name, kind in get_type_hints(cls).items():
                TypeAdapter(kind).validate_python(getattr(manifest, name), strict=True)
            TypeAdapter(list[FileState]).validate_python(manifest.contents)
            counts = manifest.rows, manifest.tokens, manifest.label_tokens
            if not all(type(count) is int and 0 <= count < _LARGEST_COUNT for count in counts):
                raise DamagedError(f"{MANIFEST} has impossible counts")
            if manifest.per_example not in (1, 2) or manifest.rows % manifest.per_example:
                raise DamagedError(f"{MANIFEST} tells of pairs that are not whole")
            if set(manifest.checksums) != {*manifest.sizes(), QUARANTINE}:
                raise DamagedError(f"{MANIFEST} does not list the files of a store")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DamagedError(f"{MANIFEST} cannot be read ({type(error).__name__})") from error
        return manifest


def _read_regular(path: Path) -> bytes:
    """A pipe or device in the manifest's place would make the reader wait, or read, without end."""
    state = path.lstat()
    if not stat.S_ISREG(state.st_mode):
        raise DamagedError(f"{path.name} is no regular file")
    if state.st_size > _LARGEST_MANIFEST:
        raise DamagedError(f"{path.name} is too large")
    return path.read_bytes()


def _checksum(body: dict[str, Any]) -> str:
    return blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=20).hexdigest()
