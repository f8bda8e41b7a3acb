"""Where stores lie, and whether that is a slow place."""

from __future__ import annotations

from pathlib import Path

from dynotune.cache_folder import cache_folder as dynotunes_folder

_SLOW = {
    "nfs": "a network file system",
    "nfs4": "a network file system",
    "cifs": "a network file system",
    "smb3": "a network file system",
    "smbfs": "a network file system",
    "afs": "a network file system",
    "ceph": "a network file system",
    "lustre": "a network file system",
    "beegfs": "a network file system",
    "gpfs": "a network file system",
    "glusterfs": "a network file system",
    "9p": "a file system of another machine, as Windows' drives are under WSL",
    "drvfs": "a Windows drive under WSL",
    "virtiofs": "a file system of another machine",
}


def cache_folder(token_cache_dir: str | None) -> Path:
    """The folder of all token stores: the key, or `tokens` in Dynotune's cache folder."""
    if token_cache_dir is not None:
        return Path(token_cache_dir).expanduser().absolute()
    return dynotunes_folder() / "tokens"


def slow_mount(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """What kind of slow mount `path` lies on: `nfs4, a network file system`. None for others and where it is unknown."""
    try:
        table = mounts.read_text(encoding="utf-8", errors="surrogateescape")
        real = path.resolve()
    except OSError:
        return None
    best: tuple[int, str] = (-1, "")
    for line in table.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        where = Path(fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
        # Of two mounts at one place the later covers the earlier.
        if (where == real or where in real.parents) and len(where.parts) >= best[0]:
            best = len(where.parts), fields[2]
    kind = best[1]
    if kind.startswith("fuse.") and kind not in ("fuse.snapfuse", "fuse.overlayfs", "fuse.fuse-overlayfs"):
        return f"{kind}, a file system in user space"
    return f"{kind}, {_SLOW[kind]}" if kind in _SLOW else None
