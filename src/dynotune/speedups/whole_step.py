"""What no step should hold, whichever speed-ups stand: matrix products in full precision in a run of 16 bits, and waits of
the host in the forward and backward pass. Judged of the traced step as a whole; data in and out.

Without evidence the answer is *unknown* and never that there is none: a trace without the types of operands does not say
that all of them had 16 bits.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from dynotune.measure.evidence import Evidence, Phase, Source
from dynotune.printable import printable
from dynotune.speedups.absences import counted, named, waits_of_host
from dynotune.speedups.full_precision import COMPUTATION, SIXTEEN_BITS, computes_in, in_full_precision, not_told

MOST_EVENTS = 20
"""Kinds of events that are kept of each, the most frequent."""

PRODUCTS, WAITS = "full-precision products", "waits of the host"

ADVICE = {
    PRODUCTS: (
        "The run computes in 16 bits, and a GPU takes several times as long for these: the model's own code or a patch casts"
        " its input, or autocast does not reach float32 weights, as in the experts of a mixture (`dtype: bfloat16`)"
    ),
    WAITS: (
        "A value goes to Python in the middle of the pass (`.item()`, `float()`, `if` of a tensor), and a GPU has nothing to"
        " do meanwhile"
    ),
}
"""What each means, for who is warned of it."""


class Presence(StrEnum):
    """Whether a step held something that it should not."""

    ABSENT = "absent"
    FOUND = "found"
    UNKNOWN = "unknown"
    ALLOWED = "allowed"
    """It is what was asked for, so that nobody looked."""


WORST_FIRST = (Presence.FOUND, Presence.UNKNOWN, Presence.ABSENT, Presence.ALLOWED)


@dataclass(frozen=True, slots=True)
class Unwanted:
    """What a traced step says of one thing that it should not hold."""

    what: str
    presence: Presence
    count: int = 0
    """Of events, in the micro-batches that were traced."""

    events: tuple[Mapping[str, Any], ...] = ()
    """Which: `name` of the kernel, operator or call, its largest `shape`, `phase`, `place` (the innermost module that was
    watched) and `count`; the most frequent first."""

    why: str = ""
    """Of one that is unknown or allowed."""

    @property
    def is_open(self) -> bool:
        """Whether it was seen, or nobody can tell."""
        return self.presence in (Presence.FOUND, Presence.UNKNOWN)

    @property
    def state(self) -> str:
        """`absent`, or `4 found`."""
        return f"{self.count:,} found" if self.presence is Presence.FOUND else str(self.presence)

    @property
    def evidence(self) -> str:
        """Which and where, or why nobody can tell, in a line."""
        counts = Counter[str]()
        for one in self.events:
            counts[named(one["name"], one["shape"], one["phase"], one["place"])] += one["count"]
        return printable(counted(counts) or self.why)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises `ValueError`, `TypeError` or `KeyError` for what `to_json` did not give."""
        found = cls(**{**body, "presence": Presence(body["presence"]), "events": tuple(body["events"])})
        if not isinstance(found.what, str) or not isinstance(found.count, int) or not isinstance(found.why, str):
            raise TypeError("a value of another type")
        for event in found.events:
            texts = event["name"], event["phase"], event["place"]
            if not all(isinstance(text, str) for text in texts) or not isinstance(event["count"], int):
                raise TypeError("an event of values of another type")
            if not all(isinstance(n, int) for n in event["shape"]):
                raise TypeError("a shape that is none")
        return found


def unwanted_in(evidence: Evidence) -> tuple[Unwanted, ...]:
    """Of one traced step on one rank, everything that is looked for."""
    return _products(evidence), _waits(evidence)


def worst(of_ranks: Iterable[Sequence[Unwanted]]) -> tuple[Unwanted, ...]:
    """Of several ranks, for each thing what the one says that has most of it."""
    return tuple(
        min(each, key=lambda one: (WORST_FIRST.index(one.presence), -one.count)) for each in zip(*of_ranks, strict=True)
    )


def _products(evidence: Evidence) -> Unwanted:
    compute = computes_in(evidence)
    if compute not in SIXTEEN_BITS:
        return Unwanted(PRODUCTS, Presence.ALLOWED, why=f"the run computes in {compute}")
    events = Counter[tuple[str, tuple[int, ...], str, str]]()
    for one in in_full_precision(evidence):
        shape = max(one.shapes, key=math.prod, default=())
        events[printable(one.name, 200), shape, str(one.phase), one.place] += one.count
    return _judged(PRODUCTS, events, _says_nothing(evidence, Source.KERNEL) or not_told(evidence))


def _waits(evidence: Evidence) -> Unwanted:
    """Outside of forward, backward and update ranks wait for each other. Of an optimizer that cannot skip a step on the
    device the host waits for one flag in the update, which the run says when it begins."""
    phases = COMPUTATION if evidence.facts.get("update_waits") else (*COMPUTATION, Phase.UPDATE)
    events = Counter[tuple[str, tuple[int, ...], str, str]]()
    for one in waits_of_host(evidence, phases):
        events[one["name"], (), one["phase"], one["place"]] += one["count"]
    return _judged(WAITS, events, _says_nothing(evidence, Source.RUNTIME))


def _judged(what: str, events: Counter[tuple[str, tuple[int, ...], str, str]], untold: str) -> Unwanted:
    """What was seen was seen, whatever else the trace does not tell."""
    if not events:
        return Unwanted(what, Presence.UNKNOWN if untold else Presence.ABSENT, why=untold)
    kinds = tuple(
        {"name": name, "shape": list(shape), "phase": phase, "place": place, "count": count}
        for (name, shape, phase, place), count in events.most_common(MOST_EVENTS)
    )
    return Unwanted(what, Presence.FOUND, events.total(), kinds)


def _says_nothing(evidence: Evidence, needed: Source) -> str:
    """Why a trace without such events proves nothing. needed: what a GPU's must hold."""
    if (why := evidence.facts.get("not_traced")) is not None:
        return f"the step was not traced: {why}"
    if not any(one.phase in COMPUTATION for one in evidence.seen):
        return "the trace is empty"
    if evidence.device != "cuda":
        return ""
    if not evidence.has_device_events:
        return "the profiler saw no kernel on the GPU"
    if not any(one.source is needed for one in evidence.seen):
        return f"the trace has no {needed} events"
    return ""
