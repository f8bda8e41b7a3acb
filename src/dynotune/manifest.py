"""What a folder of ours holds: every file with its size and a checksum, so that a changed byte is noticed.

`manifest.json` is written last and has a checksum of itself. XXH3-128 finds damage at the speed of memory, where SHA-256
would take as long as the disk; it proves nothing against somebody who rewrites file and manifest.
"""

import json
import os
import stat
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self

import xxhash

MANIFEST = "manifest.json"

FORMAT = 1
"""Number of the format. A manifest of another number is not read."""

_LARGEST = 1 << 26
_READ = 1 << 22


class DamagedError(Exception):
    """A folder that is not what its manifest says, or a manifest that says nothing. The message says where, for people."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file."""

    size: int
    checksum: str
    """XXH3-128 of its first `size` bytes, in hexadecimal."""

    grows: bool = False
    """Whether the file may be longer by now: lines are added to it while a run goes on."""


@dataclass(slots=True)
class Manifest:
    """The files of a folder."""

    kind: str
    """`checkpoint`, `run` or `model`."""

    files: dict[str, Entry]
    """By path below the folder, with forward slashes."""

    about: dict[str, Any] = field(default_factory=dict)
    """For people and for a resume: versions, step, ranks."""

    format: int = FORMAT

    @property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self.files.values())

    def to_bytes(self) -> bytes:
        """JSON in one canonical form, with the checksum of all the rest as its last key."""
        body = asdict(self)
        checksum = xxhash.xxh3_128_hexdigest(_canonical(body))
        return _canonical({**body, "checksum": checksum}) + b"\n"

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises `DamagedError`, also where there is none."""
        text = _read_small(folder / MANIFEST)
        try:
            body = json.loads(text)
            if body["format"] != FORMAT:
                raise DamagedError(f"{MANIFEST} has format {body['format']!r}, and this version reads {FORMAT}")
            body.pop("checksum")
            files = {name: Entry(**entry) for name, entry in body.pop("files").items()}
            manifest = cls(**body, files=files)
            canonical = manifest.to_bytes()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DamagedError(f"{MANIFEST} is no manifest ({type(error).__name__})") from error
        if canonical != text:
            raise DamagedError(f"{MANIFEST} differs from its own checksum")
        # Whoever can write a manifest can write its checksum: it must still not lead outside the folder.
        if not (isinstance(manifest.kind, str) and isinstance(manifest.about, dict)):
            raise DamagedError(f"{MANIFEST} is no manifest")
        for name, entry in manifest.files.items():
            if not _stays_below(name) or type(entry.size) is not int or entry.size < 0:
                raise DamagedError(f"{MANIFEST} lists {ascii(name)[:80]}, which is no file below its folder")
        return manifest

    def write(self, folder: Path) -> None:
        """Replace the manifest in `folder`, whole or not at all. Raises `OSError`."""
        beside = folder / f".{MANIFEST}.{os.getpid()}"
        with beside.open("wb") as file:
            file.write(self.to_bytes())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / MANIFEST)

    def damage(self, folder: Path, *, contents: bool = True) -> list[str]:
        """What is not as it was written, a sentence each. `contents`: read every byte, not only sizes."""
        return [said for name, entry in self.files.items() if (said := _damage(folder / name, name, entry, contents))]


def seal(folder: Path, kind: str, about: dict[str, Any], files: Iterable[Path], grow: Iterable[str] = ()) -> Manifest:
    """Write the manifest of `files`, which lie below `folder`; those named in `grow` may get longer. Raises `OSError`."""
    growing = set(grow)
    entries = {}
    for path in sorted(files):
        name = path.relative_to(folder).as_posix()
        size, checksum = checksum_of(path)
        entries[name] = Entry(size, checksum, name in growing)
    manifest = Manifest(kind, entries, about)
    manifest.write(folder)
    return manifest


def below(folder: Path) -> list[Path]:
    """Every file below a folder but its own manifest."""
    return [p for p in folder.rglob("*") if p.is_file() and p != folder / MANIFEST]


def checksum_of(path: Path, first: int | None = None) -> tuple[int, str]:
    """Bytes of a file, or of its `first` bytes, that were read, and their XXH3-128."""
    digest, size = xxhash.xxh3_128(), 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_READ if first is None else min(_READ, first - size)):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()


def versions() -> dict[str, str]:
    """What wrote a folder."""
    from importlib.metadata import version

    from dynotune._version import __version__

    return {
        "dynotune": __version__,
        **{name: version(name) for name in ("torch", "transformers", "peft", "safetensors")},
    }


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, indent=1, ensure_ascii=True, allow_nan=False).encode()


def _damage(path: Path, name: str, entry: Entry, contents: bool) -> str | None:
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return f"{name} is no regular file"
        if found.st_size < entry.size or (found.st_size > entry.size and not entry.grows):
            return f"{name} has {found.st_size:,} bytes; {entry.size:,} were written"
        if contents and checksum_of(path, entry.size)[1] != entry.checksum:
            return f"{name} differs from its checksum"
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read ({error.strerror})"
    return None


def _stays_below(name: Any) -> bool:
    if not isinstance(name, str) or "\\" in name or "\0" in name:
        return False
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and ":" not in path.parts[0]


def _read_small(path: Path) -> bytes:
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
            raise DamagedError(f"{path.name} is no manifest")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise DamagedError(f"it has no {path.name}") from error
    except OSError as error:
        raise DamagedError(f"{path.name} cannot be read ({error.strerror})") from error
