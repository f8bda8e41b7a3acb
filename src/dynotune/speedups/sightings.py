"""Where in a traced step one expectation was met, and where not."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynotune.measure.evidence import Evidence, Phase, Seen, Source
from dynotune.speedups.expectation import Expected

ON_DEVICE = (Source.KERNEL, Source.COPY)
ON_HOST = (Source.OPERATOR, Source.REGION)

_WORD = re.compile(r"[\w:~]*")


@dataclass(frozen=True, slots=True)
class Lack:
    """A place at which something was not seen as often as expected."""

    at: str
    """Where it was looked for: the place, or the compiled module that it lies in; empty: anywhere in the step."""

    phase: Phase
    places: int
    """So many places are looked for there."""

    lacking: int
    """So many of them lack it, at least in one micro-batch."""

    because: str = ""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What of an expectation was seen."""

    expected: Expected
    events: tuple[Seen, ...]
    """Those that count: of the right name, in the right phase, at the places."""

    lacks: tuple[Lack, ...] = ()
    not_judged: str = ""
    """Why the trace does not say; empty where it does."""

    @property
    def share(self) -> float:
        """How much of what is expected anywhere in the step was seen, at most 1."""
        return min(1.0, sum(one.count for one in self.events) / self.expected.each)


def look(expected: Expected, evidence: Evidence) -> Sighting:
    """Look for an expectation in a trace."""
    patterns, sources = _evidence_for(expected, evidence.device)
    if not patterns:
        return Sighting(expected, (), not_judged=f"there are no operators to tell {expected.what} by on the CPU")
    found = tuple(evidence.matching(patterns, source=sources, phase=expected.phase))
    if not expected.at:
        seen = sum(one.count for one in found)
        lacks = [] if seen >= expected.each else [Lack("", expected.phase, 1, 1, f"{seen} of {expected.each}")]
        return _unless_lost(Sighting(expected, found, tuple(lacks)), evidence)
    at, unwatched = _where_to_look(expected.at, evidence)
    found = tuple(one for one in found if any(above in at for above in _path(one.place)))
    lacks = [*_lacks(expected, found, at, evidence)]
    lacks += [Lack(place, expected.phase, 1, 1, "was not watched") for place in unwatched]
    return _unless_lost(Sighting(expected, found, tuple(lacks)), evidence)


def shown(events: Sequence[Seen], patterns: Sequence[str]) -> str:
    """`flash_fwd_kernel x 28`, of names as long as a template's the part that was recognised."""
    wanted = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    counts = Counter[str]()
    for one in events:
        counts[_recognised(one.name, wanted)] += one.count
    return ", ".join(f"{name} x {count}" for name, count in counts.most_common(4))


def patterns_of(expected: Expected, device: str) -> tuple[str, ...]:
    return _evidence_for(expected, device)[0]


def _evidence_for(expected: Expected, device: str) -> tuple[tuple[str, ...], tuple[Source, ...]]:
    if device == "cuda" and expected.kernels:
        return expected.kernels, ON_DEVICE
    return expected.operators, ON_HOST


def _where_to_look(at: Sequence[str], evidence: Evidence) -> tuple[dict[str, int], list[str]]:
    """How many places are to be seen at each module that had a range; and places which lie in none that had."""
    where, unwatched = Counter[str](), []
    for place in at:
        nearest = next((above for above in _path(place) if above in evidence.watched), None)
        if nearest is None:
            unwatched.append(place)
        else:
            where[nearest] += 1
    return dict(where), unwatched


def _path(place: str) -> Iterator[str]:
    """The place, then what it lies in, up to the model, which is empty."""
    parts = place.split(".") if place else []
    return (".".join(parts[:i]) for i in range(len(parts), -1, -1))


def _lacks(expected: Expected, found: Sequence[Seen], at: dict[str, int], evidence: Evidence) -> Iterator[Lack]:
    by_micro_batch = expected.phase in (Phase.FORWARD, Phase.BACKWARD)
    counts = Counter[tuple[str, int]]()
    for one in found:
        for above in _path(one.place):
            counts[above, one.micro_batch if by_micro_batch else -1] += one.count
    # The first layer of a model whose embedding is frozen gets no gradient, and has none to give.
    beyond = evidence.facts.get("without_gradient", ()) if expected.phase is Phase.BACKWARD else ()
    for name, places in at.items():
        if name in beyond:
            continue
        micro_batches = range(evidence.micro_batches) if by_micro_batch else (-1,)
        met = min((counts[name, i] // expected.each for i in micro_batches), default=0)
        if met < places:
            yield Lack(name, expected.phase, places, places - met)


def _unless_lost(sighting: Sighting, evidence: Evidence) -> Sighting:
    """Where some of it was launched from where the tracer cannot tell, a lack proves nothing."""
    patterns = patterns_of(sighting.expected, evidence.device)
    lost = sum(
        n for name, n in evidence.facts.get("unattributed", {}).items() if any(re.search(p, name) for p in patterns)
    )
    if not lost or not sighting.lacks:
        return sighting
    why = f"{lost} kernels of {sighting.expected.what} could not be traced to their launch"
    return Sighting(sighting.expected, sighting.events, sighting.lacks, why)


def _recognised(name: str, wanted: re.Pattern[str]) -> str:
    """The whole word in which the pattern was found."""
    found = wanted.search(name)
    if found is None or len(name) <= 60:
        return name
    begin = found.start()
    while begin and _WORD.fullmatch(name[begin - 1]):
        begin -= 1
    end = _WORD.match(name, found.end())
    return name[begin : end.end() if end else found.end()][:80]
