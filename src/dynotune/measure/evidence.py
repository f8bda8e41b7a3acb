"""What was seen in a traced step: events of the same kind in the same place, added up. Data only; `trace.py` collects it.

Phases and places come from ranges that the tracer puts around micro-batches and modules. A backward event belongs to the
place whose forward operation made its node, found by autograd's sequence numbers.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Source(StrEnum):
    """Where an event comes from."""

    KERNEL = "kernel"
    """Ran on the device."""

    COPY = "copy"
    """A copy or fill on the device; its name says between what (`Memcpy DtoH (Device -> Pageable)`)."""

    OPERATOR = "operator"
    """An operator or autograd function on the host, whatever it launched."""

    RUNTIME = "runtime"
    """A call of the device's runtime on the host: launches, waits."""

    REGION = "region"
    """A range that PyTorch marks, such as a compiled region."""


class Phase(StrEnum):
    """When, within a step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    """Recomputation of checkpointed layers included."""

    UPDATE = "update"
    """Clipping and the optimizer."""

    OTHER = "other"
    """Between those, and in other threads."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Events that differ in nothing but their time."""

    name: str
    source: Source
    phase: Phase
    place: str = ""
    """The innermost module that was watched, by name; empty where there is none."""

    micro_batch: int = -1
    """Its number among those that were traced, from 0; -1 outside of micro-batches."""

    count: int = 1
    microseconds: float = 0.0
    """In all. Of a kernel on the device, of the others on the host."""

    shapes: tuple[tuple[int, ...], ...] = ()
    """Of an operator's arguments; () for what is no tensor."""

    dtypes: tuple[str, ...] = ()
    """Of an operator's arguments, by the profiler's names (`float`, `c10::BFloat16`, `Scalar`)."""

    bytes: int = 0
    """Of copies, in all."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One traced step."""

    step: int
    device: str
    """`cuda` or `cpu`."""

    has_device_events: bool
    """Whether any kernel was seen. A GPU without them is no evidence of anything."""

    seen: tuple[Seen, ...]
    micro_batches: int
    """That were traced, with the update: all of the step's, or a few of many (`facts["micro_batches"]`)."""

    watched: frozenset[str] = frozenset()
    """Names of modules that had a range of their own."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the run knows of what was traced: `documents` (two of a pair), `sequence_tokens` (of all of them),
    `laid_out_tokens` (what pairs share counted once), `tokens`, `labels` and `sequences` (tokens of its documents; of each
    micro-batch), `traced_micro_batches`
    (their numbers in the step), `launches` and the like. Of the whole step: `micro_batches`, `real_tokens`, `label_tokens`,
    `vocabulary`, `experts` (of a mixture), `compute` (the precision of products), `update_waits` (the host waits for the
    update by design), `states_of_8_bits` (of how many of the optimizer's weights, and of how many it should be), `waits`
    (the feed's, in seconds), `made_ahead` (micro-batches), `compile` (counted by torch._dynamo) ..."""

    seconds: float = 0.0
    """What tracing took beyond the step: to begin, to end and to read it."""

    @property
    def is_whole(self) -> bool:
        """Whether every micro-batch of the step was traced."""
        return self.micro_batches >= int(self.facts.get("micro_batches", 0))

    def matching(
        self,
        patterns: Iterable[str],
        source: Source | tuple[Source, ...] = (Source.KERNEL, Source.OPERATOR),
        phase: Phase | None = None,
        at: str | None = None,
        micro_batch: int | None = None,
    ) -> Iterator[Seen]:
        """Events whose name any of the regular expressions finds. `at`: in this module or in one below it."""
        sources = (source,) if isinstance(source, Source) else source
        wanted = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
        for one in self.seen:
            if one.source not in sources or (phase is not None and one.phase is not phase):
                continue
            if micro_batch is not None and one.micro_batch != micro_batch:
                continue
            if at is not None and one.place != at and not one.place.startswith(f"{at}."):
                continue
            if wanted.search(one.name):
                yield one

    def count(self, patterns: Iterable[str], **where: Any) -> int:
        """How many events `matching` finds."""
        return sum(one.count for one in self.matching(patterns, **where))
