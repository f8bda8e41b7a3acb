"""One step under the profiler, read into evidence: what ran, in which phase and micro-batch, at which module.

    tracer = Tracer(model, places, device)
    with tracer.step(2, facts) as traced:
        with traced.forward(0): ...
        with traced.backward(0): ...
        with traced.update(): ...
    traced.evidence

Tracing costs the step's slow-down and what `Evidence.seconds` says, which grows with events; on the first time on a GPU
about a second more. A `Sample` traces some micro-batches and the update only. It leaves nothing behind, also where the step
raises.
"""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch._C._autograd import _profiler_enabled
from torch.profiler import record_function

from dynotune.measure.evidence import Evidence, Phase, Seen, Source
from dynotune.measure.traces.attribution import PHASES, STEP, Attribution, attribute, phase_mark
from dynotune.measure.traces.events import ANNOTATION, MARK, Events, read
from dynotune.measure.traces.facts import bytes_of_copy, compile_counters, counted_since, facts_of, together
from dynotune.measure.traces.places import Places
from dynotune.measure.traces.stretches import Stretches

Range = AbstractContextManager[Any]


class StepMarks(Protocol):
    """What the loop says of a step while it takes it."""

    def forward(self, micro_batch: int) -> Range: ...
    def backward(self, micro_batch: int) -> Range: ...
    def update(self) -> Range: ...


class NotTracing:
    """For the loop, where no trace is taken."""

    def forward(self, micro_batch: int) -> Range:
        return _NOTHING

    def backward(self, micro_batch: int) -> Range:
        return _NOTHING

    def update(self) -> Range:
        return _NOTHING


_NOTHING = nullcontext()
NOT_TRACING = NotTracing()


@dataclass(frozen=True, slots=True)
class Sample:
    """Which micro-batches of a step are traced. Between them, and up to the update, nothing stands around anything."""

    numbers: tuple[int, ...]
    """In the step, from 0, rising, and 0 among them. The evidence numbers them by their place here."""

    of: int
    """Micro-batches of the step."""

    @property
    def is_whole(self) -> bool:
        return len(self.numbers) == self.of


class TracedStep:
    """A step that is being traced. `evidence` is there when it is over."""

    def __init__(
        self,
        stretches: Stretches | None = None,
        sample: Sample | None = None,
        aside: Callable[[], Range] = nullcontext,
    ) -> None:
        """stretches: None traces nothing. aside: stands around what tracing does within the step."""
        self.evidence: Evidence | None = None
        """None while the step runs, and where it raised."""

        self.events: Events | None = None
        """All of them, one by one, and in `where` what they belong to: for who asks when something ran. As `evidence`, and
        None where only a part of the step was traced."""

        self.where: Attribution | None = None
        self.micro_batches = 0
        """That were traced."""

        self._stretches, self._aside = stretches, aside
        self._sample = None if sample is None or sample.is_whole else sample
        assert self._sample is None or 0 in self._sample.numbers

    def forward(self, micro_batch: int) -> Range:
        """Around the forward pass of a micro-batch, by its number in the step from 0."""
        number = self._number(micro_batch)
        if number is None:
            return _NOTHING
        self.micro_batches = max(self.micro_batches, number + 1)
        self._go_on()
        return record_function(phase_mark(Phase.FORWARD, number))

    def backward(self, micro_batch: int) -> Range:
        """Around the backward pass of a micro-batch."""
        number = self._number(micro_batch)
        if number is None:
            return _NOTHING
        mark = record_function(phase_mark(Phase.BACKWARD, number))
        return self._then_pause(mark) if self._left_out(micro_batch + 1) else mark

    def update(self) -> Range:
        """Around clipping and the optimizer's step."""
        self._go_on()
        return record_function(phase_mark(Phase.UPDATE))

    def _number(self, micro_batch: int) -> int | None:
        """In the evidence; None of one that is left out."""
        if self._sample is None:
            return micro_batch
        return self._sample.numbers.index(micro_batch) if micro_batch in self._sample.numbers else None

    def _left_out(self, micro_batch: int) -> bool:
        sample = self._sample
        return sample is not None and micro_batch < sample.of and micro_batch not in sample.numbers

    def _go_on(self) -> None:
        stretches = self._stretches
        if stretches is not None and not stretches.running and not stretches.disturbed:
            with self._aside():
                stretches.begin()

    @contextmanager
    def _then_pause(self, mark: Range) -> Iterator[None]:
        with mark:
            yield
        if self._stretches is not None and self._stretches.running:
            with self._aside():
                self._stretches.end()


class Tracer:
    """Traces steps of `model` on `device`, with the modules `places`, by name, told apart."""

    def __init__(self, model: nn.Module, places: Iterable[str], device: torch.device) -> None:
        """Raises `ValueError` for a place that is no module of the model."""
        self.places, self.device = Places(model, places), device

    @contextmanager
    def step(
        self,
        number: int,
        facts: Mapping[str, Any] | None = None,
        sample: Sample | None = None,
        aside: Callable[[], Range] = nullcontext,
    ) -> Iterator[TracedStep]:
        """Everything inside is the step. `facts` are read when it is over, so they may still be filled meanwhile.

        sample: the micro-batches to be traced, with the update; None: everything. aside: stands around what tracing does
        within the step, where that is sampled. Where another profiler runs already, or when a second part is to begin, it is
        left alone, and the evidence is empty and says so in `facts["not_traced"]`; so where another one came into ours.
        """
        given = facts if facts is not None else {}
        if _profiler_enabled():  # a second one would end the first
            traced = TracedStep(sample=sample)
            yield traced
            traced.evidence = self._nothing(number, traced, given, "another profiler was running")
            return
        compiled, stretches = compile_counters(), Stretches(self.places.watched(), self.device)
        traced = TracedStep(stretches, sample, aside)
        try:
            stretches.begin()
            yield traced
            if stretches.running:
                stretches.end()
        finally:
            stretches.leave()
        began = time.perf_counter()
        with _no_garbage_collection():
            parts = [part for result in stretches.results if (part := _read(result)) is not None]
            if stretches.disturbed or len(parts) < len(stretches.results):
                traced.evidence = self._nothing(number, traced, given, "another profiler ran in the middle of the step")
                return
            seen = tuple(one for part in parts for one in part.seen)
        if len(parts) == 1 and (sample is None or sample.is_whole):
            traced.events, traced.where = parts[0].events, parts[0].where
        traced.evidence = Evidence(
            step=number,
            device=self.device.type,
            has_device_events=_has_device_events(parts),
            seen=seen,
            micro_batches=traced.micro_batches,
            watched=frozenset(stretches.ranges.modules),
            facts={
                **together([part.facts for part in parts]),
                "compile": counted_since(compiled),
                "without_gradient": sorted(stretches.ranges.without_gradient),
                **given,
            },
            seconds=stretches.seconds + time.perf_counter() - began,
        )

    def _nothing(self, number: int, traced: TracedStep, given: Mapping[str, Any], why: str) -> Evidence:
        facts = {**given, "not_traced": why}
        return Evidence(number, self.device.type, False, (), traced.micro_batches, facts=facts)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one stretch of a step showed."""

    events: Events
    where: Attribution
    seen: tuple[Seen, ...]
    facts: dict[str, Any]


def _read(result: Any) -> _Part | None:
    """None where another profiler has begun within ours: what was before that is lost."""
    events = read(result.events())
    if STEP not in events.names:
        return None
    where = attribute(events)
    return _Part(events, where, tuple(add_up(events, where)), facts_of(events, where))


def _has_device_events(parts: Sequence[_Part]) -> bool:
    """Whether kernels were seen in every stretch that launched some. One that the profiler saw from the host only would make
    what runs in it look as if it did not."""
    seen = [any(one.source is Source.KERNEL for one in part.seen) for part in parts]
    return any(seen) and all(one or not part.facts["launches"] for one, part in zip(seen, parts, strict=True))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Inside, the collector rests: it would walk through hundreds of thousands of small tuples again and again, which was
    most of the reading's time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def add_up(events: Events, where: Attribution) -> Iterator[Seen]:
    """The step's events, those that differ in nothing but their time put together. The tracer's own ranges are left out."""
    count = Counter[tuple[Any, ...]]()
    nanoseconds, moved = Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
    columns = zip(
        where.in_step.tolist(), events.kinds, events.names, where.phase.tolist(), where.place.tolist(),
        where.micro_batch.tolist(), events.shapes, events.dtypes, (events.end - events.start).tolist(), strict=True,
    )  # fmt: skip
    for i, (in_step, kind, name, phase, place, micro_batch, shapes, dtypes, took) in enumerate(columns):
        if not in_step or name.startswith(MARK):
            continue
        key = name, kind, phase, place, micro_batch, shapes, dtypes
        count[key] += 1
        nanoseconds[key] += took
        if kind is Source.COPY:
            moved[key] += bytes_of_copy(events, where, i)
    for key, times in count.items():
        name, kind, phase, place, micro_batch, shapes, dtypes = key
        source = Source.REGION if kind == ANNOTATION else kind
        yield Seen(
            name, source, PHASES[phase], where.places[place], micro_batch, times, nanoseconds[key] / 1e3, shapes, dtypes,
            moved[key],
        )  # fmt: skip
