"""What became of a profiled command, where it was not what was hoped for: in words, with its exit code and last lines."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dynotune.errors import DynotuneError
from dynotune.foreign import ended_by
from dynotune.printable import printable
from dynotune.profile.foreign.run import Ran

WIDEST = 300
"""Characters of a line that is repeated."""


class NothingSeenError(DynotuneError):
    """The command ended, and no step was timed. The message says how far it came."""


def why_nothing(words: Sequence[str], ran: Ran, events: Sequence[Mapping[str, Any]]) -> NothingSeenError:
    """events: of the command's processes, as they told them."""
    parts = [f"`{shlex.join(words)}` ended ({ended_by(ran.code)}), and no step was timed: {_how_far(events)}."]
    if ran.last:
        parts += ["The end of what it printed:", *(printable(line, WIDEST) for line in ran.last)]
    return NothingSeenError("\n".join(parts))


def _how_far(events: Sequence[Mapping[str, Any]]) -> str:
    of = {kind: [one for one in events if one["event"] == kind] for kind in ("python", "torch", "step", "failed")}
    if of["failed"]:
        return f"our hook failed in it ({of['failed'][0].get('why')}), which is a defect of Dynotune"
    if of["step"]:
        return "it took an optimizer step, and ended before the warm-up was over; try `--warm_up 1 --steps 5`"
    if of["torch"]:
        count = _processes(of["torch"])
        return f"{count} imported PyTorch, and no optimizer of torch.optim took a step in {_them(of['torch'])}"
    if of["python"]:
        return f"{_processes(of['python'])} started, and none imported PyTorch"
    return (
        "no process of Python started in it that a hook can be put into. `python -I`, `-E` and `-S` leave out what is found"
        " through PYTHONPATH, and a container has variables of its own"
    )


def _processes(found: Sequence[Mapping[str, Any]]) -> str:
    several = len({one["pid"] for one in found})
    return "one process of Python" if several == 1 else f"{several} processes of Python"


def _them(found: Sequence[Mapping[str, Any]]) -> str:
    return "it" if len({one["pid"] for one in found}) == 1 else "them"


def notes_of(ran: Ran, events: Sequence[Mapping[str, Any]], stopped: bool, ended: str) -> list[str]:
    """Of a command in which steps were timed. stopped: whether it was to be. ended: by what its steps ended."""
    notes = []
    if ended == "script":
        notes.append("The script ended by itself before everything was seen; fewer steps fit: `--warm_up 2 --steps 5`.")
    elif stopped and any(one.get("times", 0) > 1 for one in events if one["event"] == "stopped"):
        notes.append("The script caught the exception that stops it (SystemExit) and went on.")
    if ran.ended_by_us:
        notes.append("The script did not end by itself when it was stopped, and was ended by SIGTERM.")
    elif ran.code:
        last = f": {printable(ran.last[-1], WIDEST)}" if ran.last else ""
        notes.append(f"Behind the steps that were seen the command ended with {ended_by(ran.code)}{last}")
    return notes
