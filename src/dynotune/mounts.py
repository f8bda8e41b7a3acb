"""On what kind of file system a path lies, by Linux's table of mounts, and whether that is a slow one."""

from __future__ import annotations

from pathlib import Path

TABLE = Path("/proc/self/mounts")

SLOW = {
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


def kind_of(path: Path, mounts: Path = TABLE) -> str:
    """`ext4`, `nfs4`, of a path that is there or not yet; empty where that is unknown."""
    try:
        table = mounts.read_text(encoding="utf-8", errors="surrogateescape")
        real = path.expanduser().resolve()
    except (OSError, RuntimeError):  # a loop of links, a user without a home
        return ""
    best: tuple[int, str] = (-1, "")
    for line in table.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        where = Path(fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
        # Of two mounts at one place the later covers the earlier.
        if (where == real or where in real.parents) and len(where.parts) >= best[0]:
            best = len(where.parts), fields[2]
    return best[1]


def slow(kind: str) -> str | None:
    """What makes such a file system slow; None for others."""
    if kind.startswith("fuse.") and kind not in ("fuse.snapfuse", "fuse.overlayfs", "fuse.fuse-overlayfs"):
        return "a file system in user space"
    return SLOW.get(kind)


def slow_mount(path: Path, mounts: Path = TABLE) -> str | None:
    """What kind of slow mount `path` lies on: `nfs4, a network file system`. None for others and where it is unknown."""
    kind = kind_of(path, mounts)
    why = slow(kind)
    return f"{kind}, {why}" if why else None
