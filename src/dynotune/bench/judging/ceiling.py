"""The most that a change can gain (Amdahl, 1967): what it touches takes a share s of the baseline's step, and were that gone
altogether, the step would be 1 / (1 - s) times as fast. Who measures more has measured something else.

The share is that of the baseline's traced step, by classes of work (`measure.kernel_classes`), of which a speed-up declares
those that it touches. Whatever is not sure counts as touched, so that a right figure is never called too good.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dynotune.bench.asking.arms import OF_SPEEDUPS, WHOLE, Arm, between, devices_of
from dynotune.bench.judging.verdict import largest_ratio
from dynotune.measure.kernel_classes import IDLE, Work
from dynotune.speedups.contract import Scope
from dynotune.speedups.registry import speedups

BESIDE: Mapping[Work, Collection[Work]] = {
    Work.LORA: (Work.ELEMENTWISE,),
    Work.ATTENTION: (Work.ELEMENTWISE,),
    Work.HEAD: (Work.ELEMENTWISE,),
}
"""What goes with a class: additions and scaling around adapters, masks and rotations before an attention."""

ALWAYS = frozenset({Work.COPIES, Work.OTHER})
"""Casts stand around everything, and what no rule knows may be anybody's."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Of one arm against another."""

    ratio: float | None = None
    """None: not known, or without end."""

    share: float | None = None
    """Of the other arm's step, at most, that the change touches."""

    why_not: str = ""
    """Why it is not known, as the end of a sentence."""


def ceiling(
    first: Arm,
    other: Arm,
    stood: tuple[Mapping[str, Any], Mapping[str, Any]],
    spent: Mapping[str, Any] | None,
    seconds_a_token: float | None,
) -> Ceiling:
    """Of `other` against `first`. stood: what each said of itself when it stood. spent: `workers.spent` of the first one's
    traced step. seconds_a_token: its wall time by real token, in the blocks that count."""
    touched = _touched(first, other, stood)
    if isinstance(touched, str):
        return Ceiling(why_not=touched)
    if spent is None or seconds_a_token is None or not spent["real_tokens"]:
        return Ceiling(why_not=f"no step of {first.name} was traced")
    took = {Work(name): seconds for name, seconds in spent["seconds"].items()}
    share = _share(took, touched, spent["on_device"], spent["real_tokens"] * seconds_a_token)
    ratio = largest_ratio(share)
    return Ceiling(ratio if math.isfinite(ratio) else None, share)


def _share(took: Mapping[Work, float], touched: Collection[Work], on_device: bool, step: float) -> float:
    """Of the step. On a device what is left must still run there, whatever the host does meanwhile; on the CPU Python's own
    time between operators may go with them."""
    if on_device:
        left = sum(seconds for work, seconds in took.items() if work not in IDLE and work not in touched)
        return 1 - left / max(step, sum(seconds for work, seconds in took.items() if work not in IDLE))
    gone = sum(seconds for work, seconds in took.items() if work in touched or work is Work.HOST)
    whole = sum(took.values())
    return gone / whole if whole else 1.0


def _touched(first: Arm, other: Arm, stood: tuple[Mapping[str, Any], Mapping[str, Any]]) -> frozenset[Work] | str:
    """Classes of work; or why there is no ceiling."""
    keys = [key for key in between(first.config, other.config).changed if key not in OF_SPEEDUPS]
    if keys:
        return f"`{keys[0]}` may touch all of a step"
    if devices_of(first) > 1 or devices_of(other) > 1:
        return "devices wait for one another"
    a, b = stood
    if a["precision"] != b["precision"]:
        return f"precision differs ({a['precision']} and {b['precision']})"
    found: set[Work] = set()
    apart = sorted({*a["installed"]} ^ {*b["installed"]})
    for name in apart:
        one = speedups()[name]
        if one.scope in WHOLE:
            return f"{name} lays steps out otherwise" if one.scope is Scope.PLAN else f"{name} changes the process"
        if not one.touches:
            return f"{name} may touch all of a step"
        found |= {Work(work) for work in one.touches}
    if not apart:
        return "both run the same speed-ups"
    return frozenset(found.union(ALWAYS, *(BESIDE.get(work, ()) for work in found)))
