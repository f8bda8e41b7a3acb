"""Why there is nothing to take: what differs from the nearest values that were kept."""

from collections.abc import Collection
from pathlib import Path

from dynotune.manifest import DamagedError
from dynotune.reference.key import Key, differing
from dynotune.reference.pairs import as_bytes
from dynotune.reference.segments import FORMAT, folder_of, paths, read

_LOOKED_AT = 50
"""Folders, the newest first. More would cost time for no better answer."""


def why_new(root: Path, key: Key, wanted: Collection[bytes]) -> str:
    """In words, for "made anew: ...". `wanted`: digests of pairs."""
    own = folder_of(root, key)
    if paths(own):
        return "none of these pairs was met before (other tokens, masks or truncation)"
    best: tuple[int, str] | None = None
    for folder in _newest(root, own):
        for path in paths(folder)[:1]:
            try:
                segment = read(path, expected=folder.name)
            except (DamagedError, OSError):
                continue
            parts = differing(segment.key, key)
            if parts and not set(as_bytes(segment.digests)).isdisjoint(wanted):
                told = len(parts), f"{' and '.join(parts)} changed since {segment.date}"
                best = min(best or told, told)
    return best[1] if best else "first time"


def _newest(root: Path, own: Path) -> list[Path]:
    try:
        folders = [
            path for path in root.iterdir() if path.name.endswith(f"-{FORMAT}") and path != own and path.is_dir()
        ]
        return sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)[:_LOOKED_AT]
    except OSError:
        return []
