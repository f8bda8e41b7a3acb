"""How many cores this process may use: those of the machine, of its affinity, and of its control group's quota."""

import math
import os
from pathlib import Path

_V2 = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """At least 1. A container's quota is rounded up: half a core more is half a process more to fill it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    quota = _quota()
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def _quota(root: Path = _V2, own: Path = Path("/proc/self/cgroup")) -> float | None:
    """Cores that the control group grants, or None where it sets no limit (or the system has no such groups)."""
    limits = [_v2(folder) for folder in _own_folders(root, own)]
    limits.append(_v1(root / "cpu"))
    return min((limit for limit in limits if limit is not None), default=None)


def _own_folders(root: Path, own: Path) -> list[Path]:
    """The process' group and those above it: each may set a limit."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return [root]
    path = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return [root.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]


def _v2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _v1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        return None if quota <= 0 else quota / int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
