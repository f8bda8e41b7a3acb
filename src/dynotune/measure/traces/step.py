"""One step under the profiler, read into evidence: what ran, in which phase and micro-batch, at which module.

    tracer = Tracer(model, places, device)
    with tracer.step(2, facts) as traced:
        with traced.forward(0): ...
        with traced.backward(0): ...
        with traced.update(): ...
    traced.evidence

Tracing costs the step's slow-down and what `Evidence.seconds` says; on the first time on a GPU about a second more. It
leaves nothing behind, also where the step raises.
"""

import gc
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import nn
from torch._C._autograd import _profiler_enabled
from torch.profiler import ProfilerActivity, profile, record_function

from dynotune.measure.evidence import Evidence, Phase, Seen, Source
from dynotune.measure.traces.attribution import PHASES, PLACE, STEP, Attribution, attribute, phase_mark
from dynotune.measure.traces.events import ANNOTATION, MARK, Events, read
from dynotune.measure.traces.facts import bytes_of_copy, compile_counters, counted_since, facts_of
from dynotune.measure.traces.places import Places, Ranges

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


class TracedStep:
    """A step that is being traced. `evidence` is there when it is over."""

    def __init__(self) -> None:
        self.evidence: Evidence | None = None
        """None while the step runs, and where it raised."""

        self.events: Events | None = None
        """All of them, one by one, and in `where` what they belong to: for who asks when something ran. As `evidence`."""

        self.where: Attribution | None = None
        self.micro_batches = 0

    def forward(self, micro_batch: int) -> Range:
        """Around the forward pass of a micro-batch, by its number in the step from 0."""
        self.micro_batches = max(self.micro_batches, micro_batch + 1)
        return record_function(phase_mark(Phase.FORWARD, micro_batch))

    def backward(self, micro_batch: int) -> Range:
        """Around the backward pass of a micro-batch."""
        return record_function(phase_mark(Phase.BACKWARD, micro_batch))

    def update(self) -> Range:
        """Around clipping and the optimizer's step."""
        return record_function(phase_mark(Phase.UPDATE))


class Tracer:
    """Traces steps of `model` on `device`, with the modules `places`, by name, told apart."""

    def __init__(self, model: nn.Module, places: Iterable[str], device: torch.device) -> None:
        """Raises `ValueError` for a place that is no module of the model."""
        self.places, self.device = Places(model, places), device

    @contextmanager
    def step(self, number: int, facts: Mapping[str, Any] | None = None) -> Iterator[TracedStep]:
        """Everything inside is the step. `facts` are read when it is over, so they may still be filled meanwhile.

        Where another profiler runs already it is left alone, and the evidence is empty and says so in
        `facts["not_traced"]`.
        """
        traced, given = TracedStep(), facts if facts is not None else {}
        if _profiler_enabled():  # a second one would end the first
            yield traced
            why = {"not_traced": "another profiler was running"}
            traced.evidence = Evidence(
                number, self.device.type, False, (), traced.micro_batches, facts={**given, **why}
            )
            return
        began, compiled = time.perf_counter(), compile_counters()
        watched = self.places.watched()
        ranges = Ranges(watched, lambda name: f"{PLACE}{name}")
        with ranges, self._profiler() as profiler:
            stepped = time.perf_counter()
            with record_function(STEP):
                yield traced
            done = time.perf_counter()
        with _no_garbage_collection():
            events = read(profiler.profiler.kineto_results.events())
            where = attribute(events)
            seen = tuple(add_up(events, where))
        traced.events, traced.where = events, where
        traced.evidence = Evidence(
            step=number,
            device=self.device.type,
            has_device_events=any(one.source is Source.KERNEL for one in seen),
            seen=seen,
            micro_batches=traced.micro_batches,
            watched=frozenset(watched),
            facts={
                **facts_of(events, where),
                "compile": counted_since(compiled),
                "without_gradient": sorted(ranges.without_gradient),
                **given,
            },
            seconds=time.perf_counter() - began - (done - stepped),
        )

    @contextmanager
    def _profiler(self) -> Iterator[Any]:
        # Kineto writes two lines of its own to the terminal, each time. It reads this when it is used first.
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        on_gpu = self.device.type == "cuda"
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
        profiler = profile(activities=activities, record_shapes=True)
        profiler.start()
        try:
            yield profiler
            if on_gpu:
                torch.cuda.synchronize(self.device)  # kernels that are still to run belong to the step
        finally:
            profiler.stop()


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
