"""Projects and findings as tests make them, and whole audits of files written for the purpose."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Stake
from dynotune.audit.place import Place
from dynotune.audit.run import Request, Result, audit


def a_finding(
    code: str = "OPT001",
    place: Place = Place("sft.yaml", 3, key="optim"),  # noqa: B008  (a frozen value)
    what: AtStake = AtStake.TIME,
    low: float | None = 0.0,
    high: float | None = 0.1,
    risk: Risk = Risk.SAFE,
    message: str = "`optim: adamw_torch` launches several kernels.",
    **more: Any,
) -> Finding:
    remedy = Remedy(
        risk, more.pop("text", "Set it otherwise."), more.pop("changes", ()), measure=more.pop("measure", "")
    )
    return Finding(
        message, place, Evidence(Level.RESOLVED, {"a fact": 1}), Stake(what, low, high), remedy, code=code, **more
    )


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return folder


def audited(folder: Path, files: Mapping[str, str], **request: Any) -> Result:
    """The whole audit of a folder with these files."""
    return audit(Request(project=write(folder, files), **request))
