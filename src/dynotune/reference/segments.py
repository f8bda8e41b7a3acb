"""How reference log-probabilities lie on disk: segments, files that are written once and replaced by nobody.

A folder for each key holds any number of them: one for every half minute of a computation, of any process. Which pairs are
there is what all of them hold together, so a killed computation goes on where it stopped and no process waits for another.
A segment is its own manifest: a line of JSON with its counts, what made it, and a checksum of all of it; then flat
little-endian arrays, digests [n, 16] uint8 and values [n, columns] float64. It gets its name when it is complete.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from dynotune.manifest import DamagedError
from dynotune.printable import printable
from dynotune.reference.key import Key
from dynotune.reference.pairs import WIDTH

FORMAT = 1
SUFFIX = ".segment"
_WRITING = ".writing-"
_LONGEST_HEADER = 1 << 16
_LARGEST = 1 << 34
_ABANDONED = 86_400
"""Seconds after which a file that nobody finished is removed."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Values of some pairs, and what made them."""

    digests: NDArray[np.uint8]
    """[n, 16]."""

    values: NDArray[np.float64]
    """[n, columns], in nats. Finite."""

    made_by: dict[str, str]
    """Backend, device and versions."""

    key: dict[str, Any]
    """`Key.told`."""

    date: str

    checked_by: dict[str, str] = field(default_factory=dict)
    """What found a sample of them to be what it makes, too; empty where nothing was asked."""


def folder_of(root: Path, key: Key) -> Path:
    """Where the segments of `key` lie. A version that writes another format has folders of its own."""
    return root / f"{key.name()}-{FORMAT}"


def write(
    folder: Path,
    key: Key,
    made_by: Mapping[str, str],
    digests: NDArray[np.uint8],
    values: NDArray[np.float64],
    checked_by: Mapping[str, str] | None = None,
) -> Path:
    """A new segment in `folder`, which is made where it is not there. Whole and durable, or `OSError`."""
    assert values.shape == (len(digests), key.columns), values.shape
    assert np.isfinite(values).all()
    header = {
        "format": FORMAT,
        "key": key.told(),
        "made_by": dict(made_by),
        "checked_by": dict(checked_by or {}),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "count": len(digests),
        "columns": key.columns,
    }
    payload = np.ascontiguousarray(digests).tobytes() + np.ascontiguousarray(values, "<f8").tobytes()
    checksum = _checksum(header, payload)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sweep(folder)
    beside, place = folder / f"{_WRITING}{os.getpid()}-{os.urandom(4).hex()}", folder / f"{checksum}{SUFFIX}"
    try:
        with beside.open("xb") as file:
            file.write(json.dumps({**header, "checksum": checksum}).encode() + b"\n" + payload)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
    return place


def read(path: Path, *, expected: str | None = None) -> Segment:
    """One segment. Raises `DamagedError`, whose message says what is wrong, and `OSError`.

    `expected`: the name of the key's folder; a segment of another key is as good as damaged.
    """
    if path.is_symlink() or not path.is_file():
        raise (
            FileNotFoundError(path) if not path.exists() else DamagedError(f"{printable(path.name)} is no regular file")
        )
    if path.stat().st_size > _LARGEST:
        raise DamagedError(f"{printable(path.name)} is too large")
    line, _, payload = path.read_bytes().partition(b"\n")
    try:
        if len(line) > _LONGEST_HEADER:
            raise ValueError("no header")
        header = json.loads(line)
        checksum, count, columns = header.pop("checksum"), header["count"], header["columns"]
        if header["format"] != FORMAT:
            raise DamagedError(
                f"{printable(path.name)} has format {header['format']!r}, and this version reads {FORMAT}"
            )
        if type(count) is not int or type(columns) is not int or len(payload) != count * (WIDTH + 8 * columns):
            raise DamagedError(f"{printable(path.name)} is not as long as it says")
        if checksum != _checksum(header, payload):
            raise DamagedError(f"{printable(path.name)} differs from its checksum")
        if expected is not None and folder_of(Path(), Key(**header["key"])).name != expected:
            raise DamagedError(f"{printable(path.name)} belongs to another folder")
        made_by, checked_by = (
            {str(name): str(value) for name, value in told.items()}
            for told in (header["made_by"], header.get("checked_by", {}))
        )
        digests = np.frombuffer(payload, np.uint8, count * WIDTH).reshape(count, WIDTH)
        values = np.frombuffer(payload, "<f8", count * columns, count * WIDTH).reshape(count, columns)
        if not np.isfinite(values).all():
            raise DamagedError(f"{printable(path.name)} holds values that are not finite")
        return Segment(digests, values.astype(np.float64), made_by, header["key"], str(header["date"]), checked_by)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{printable(path.name)} is no segment ({type(error).__name__})") from error


def read_all(folder: Path) -> tuple[list[Segment], list[str]]:
    """The segments of a key's folder, in the order of their names, and what is wrong with those that were damaged.

    Damaged ones are removed where that can be done: their pairs are missing then, and are made anew.
    """
    segments, damaged = [], []
    for path in paths(folder):
        try:
            segments.append(read(path, expected=folder.name))
        except FileNotFoundError:
            continue  # another process found it damaged
        except DamagedError as error:
            damaged.append(str(error))
            try:
                path.unlink()
            except OSError:
                damaged[-1] += ", and cannot be removed"
        except OSError as error:
            damaged.append(f"{printable(path.name)} cannot be read ({error.strerror or error})")
    return segments, damaged


def paths(folder: Path) -> list[Path]:
    """Of the segments of a folder; none where there is no folder."""
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX) and path.name[0] != ".")
    except OSError:
        return []


def _checksum(header: dict[str, Any], payload: bytes) -> str:
    digest = xxhash.xxh3_128(json.dumps(header, sort_keys=True).encode() + b"\n")
    digest.update(payload)
    return digest.hexdigest()


def _sweep(folder: Path) -> None:
    """Remove what killed processes left half written."""
    for path in folder.glob(f"{_WRITING}*"):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()
        except OSError:
            continue  # somebody else removed it, or it is not ours to remove
