"""`dynotune engaged`: which speed-ups a run was seen to use, and forgetting what failed here."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from dynotune.accelerators import ACCELERATORS
from dynotune.errors import ConfigError
from dynotune.speedups.record import Record
from dynotune.speedups.registry import speedups
from dynotune.speedups.remembered import forget_everywhere
from dynotune.speedups.table import State, markdown, show

PROVED, NOT_PROVED = 0, 3
"""Exit codes: all that was to run was seen to run in every place, and nothing beside it that should not be there; or not."""


def engaged(run: Path, *, as_json: bool = False, as_markdown: bool = False) -> int:
    """Print the table of a run folder, and return the exit code. Raises `ConfigError` where there is no proof to read."""
    record = Record.read(run)
    if as_json:
        sys.stdout.write(json.dumps(record.to_json(), allow_nan=False) + "\n")
    elif as_markdown:
        sys.stdout.write(markdown(record.rows, record.unwanted))
    else:
        from rich.console import Console

        console = Console()
        show(record.rows, console, record.unwanted)
        for line in about(record):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return PROVED if record.is_proved else NOT_PROVED


def about(record: Record) -> list[str]:
    """Below the table: which step, on what, at what cost, and which kernels took most of the time."""
    judged = [] if record.unwanted else ["the step as a whole was not judged: the file is of a version that did not"]
    kind = "kernels" if record.has_device_events else "operators, which contain one another"
    lines = [
        *judged,
        f"step {record.step} was traced{record.part} on {record.machine}; that took {record.seconds:.1f} s beside the step",
    ]
    of = " of what was traced" if record.part else ""
    lines += [f"most time by {kind}{of}:"] if record.kernels else []
    for kernel in record.kernels[:5]:
        name = kernel["name"] if len(kernel["name"]) <= 60 else kernel["name"][:57] + "..."
        lines.append(f"  {kernel['share']:6.1%}  {kernel['count']:>6,} x  {name} ({kernel['phase']})")
    if any(row.state is State.TAKEN_OUT for row in record.rows):
        lines.append(
            "what was taken out is not tried again on this machine: `dynotune engaged --forget NAME` changes that"
        )
    return lines


def forget(names: Sequence[str], *, as_json: bool = False) -> None:
    """Have speed-ups tried again that failed, on every machine and version that is remembered here.

    names: also of packages, as `dynotune env` calls them; none means all. Raises `ConfigError` for a name that is none,
    unless something of that name is remembered.
    """
    known = speedups()
    packages = {known[name].package or "" for name in names if name in known}
    lines = forget_everywhere([*names, *packages - {""}] if names else [], _on_stderr)
    unknown = [name for name in names if name not in known and all(name != one.name for one in ACCELERATORS)]
    if unknown and not lines:
        from dynotune.config.checking.problems import did_you_mean

        raise ConfigError(f"there is no speed-up `{unknown[0]}`.{did_you_mean(unknown[0], known)}")
    if as_json:
        sys.stdout.write(json.dumps({"forgotten": lines}) + "\n")
    else:
        sys.stdout.write("".join(f"forgotten: {line}\n" for line in lines) or "nothing was remembered\n")


def _on_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")
