"""What a profiled process and the one that started it tell each other: files in one folder, named by a variable.

`options.json` says what is asked. `events.jsonl` gets a line when a Python process starts, imports PyTorch, takes its first
step. `observed-PID.json` is what a process that took steps saw. No package but the standard library is needed: inside, it
runs in an environment that may have none of ours.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VARIABLE = "DYNOTUNE_PROFILE_FOLDER"
OPTIONS, EVENTS = "options.json", "events.jsonl"

STOPPED = "dynotune profile: enough was seen; the script is stopped on purpose after {steps} optimizer steps."


@dataclass(frozen=True, slots=True)
class Asked:
    """How to profile."""

    steps: int = 20
    """Timed."""

    traced: int = 2
    """Behind them, under the profiler. The first one also pays for the profiler's start; the last one is kept."""

    warm_up: int | None = None
    """Steps before; None: until nothing moves and steps are level, by `bench.running.steady`."""

    stop: bool = True
    """Whether the script is stopped behind the last one, or goes on by itself."""

    snapshot: str = ""
    """File for PyTorch's memory viewer, of a traced step on a GPU; empty: none."""


def write_options(folder: Path, asked: Asked) -> None:
    (folder / OPTIONS).write_text(json.dumps(asdict(asked)), encoding="utf-8")


def read_options(folder: Path) -> Asked:
    return Asked(**json.loads((folder / OPTIONS).read_text(encoding="utf-8")))


def tell(folder: Path, event: str, **more: Any) -> None:
    """A line for the process that started the command."""
    line = json.dumps({"event": event, "pid": os.getpid(), **more}) + "\n"
    with (folder / EVENTS).open("a", encoding="utf-8") as file:
        file.write(line)


def write_observed(folder: Path, observed: dict[str, Any]) -> None:
    """Whole or not at all: the process may be ended while it writes."""
    path = folder / f"observed-{os.getpid()}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(observed), encoding="utf-8")
    part.replace(path)


def events(folder: Path) -> list[dict[str, Any]]:
    """Those that are whole; a process may have been ended while it wrote one."""
    return [one for line in _lines(folder / EVENTS) if (one := _object(line)) is not None and "event" in one]


def observed(folder: Path) -> list[dict[str, Any]]:
    """By rank."""
    found = [_object(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("observed-*.json"))]
    return sorted((one for one in found if one is not None), key=lambda one: int(one.get("rank", 0)))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
