"""Watches our loop from inside: warms up by rule, times steps without a profiler, traces some, and stops the loop.

All of it happens between two steps, so that logging, callbacks and the wait for data are in the steps as the user has them.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.profiler import record_function
from transformers import TrainerCallback

from dynotune.measure.compiles import graphs, limit, limits_met
from dynotune.measure.counters import counters
from dynotune.measure.steady import MOST_STEPS, WarmingUp
from dynotune.measure.timelines.rows import DATA_MARK
from dynotune.measure.traces.step import NOT_TRACING, TracedStep, Tracer
from dynotune.plan.plan import Step
from dynotune.profile.records.facts import memory_of
from dynotune.profile.records.record import LOG, Memory, TimedStep, Traced, WarmUp, of_plain

if TYPE_CHECKING:
    from dynotune.train.run import Run

TRACED = 3
"""Steps under the profiler."""


class Observer(TrainerCallback):
    """Of one run. `run` is set before the loop begins."""

    def __init__(
        self,
        steps: int,
        device: torch.device,
        say: Callable[[str], None],
        snapshot: Path | None = None,
        warm_up: int | None = None,
    ) -> None:
        """steps: that are timed. snapshot: file for a snapshot of the memory of the traced steps, on a GPU. warm_up: steps
        of it, in the place of the rule."""
        self.warm_steps = warm_up
        self.steps, self.device, self.say, self.snapshot = steps, device, say, snapshot
        self.run: Run | None = None
        self.places: list[str] = []
        self.warming = WarmingUp({})
        self.timed: list[TimedStep] = []
        self.traced: list[Traced] = []
        self.memory = Memory()
        self._marks: list[Any] = []
        self._now = 0.0
        self._waited = 0.0
        self._graphs = self._limits_met = 0
        self._open = ExitStack()
        self._tracing: tuple[Step, TracedStep] | None = None
        self._traces = 0
        """Steps for which a trace was begun and ended, whether or not it has events."""

    @property
    def most_steps(self) -> int:
        """After which the loop is stopped at the latest."""
        return (MOST_STEPS if self.warm_steps is None else self.warm_steps) + self.steps + TRACED

    @property
    def warm_up(self) -> WarmUp:
        warm = self.warming
        met = max(0, limits_met() - self._limits_met)
        return WarmUp(warm.steps, warm.seconds, tuple(warm.events), warm.note, tuple(warm.compiled), met, limit())

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.warming = WarmingUp(counters(self.device), most_steps=MOST_STEPS)
        self._limits_met = limits_met()
        self._settle()
        self.say("warming up")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        assert self.run is not None
        step = next(iter(self.run.plan.steps(state.global_step - 1)))
        if self._tracing is not None:
            self._end_trace()
        elif self._marks:
            self._time(step, bool(control.should_log))
        else:
            self._warm(step)
            return
        if len(self.timed) >= self.steps:
            if self._traces == TRACED:
                control.should_training_stop = True
                return
            if not self._traces:
                self._timed_out()
            self._begin_trace(next(iter(self.run.plan.steps(state.global_step))))

    def _warm(self, step: Step) -> None:
        assert self.run is not None
        self._wait()
        now = time.perf_counter()
        self.warming.step(now - self._now, counters(self.device), max(1, step.real_tokens))
        enough = self.warming.over if self.warm_steps is None else self.warming.steps >= self.warm_steps
        over = bool(self.run.ranks.from_first(enough))
        if over:
            self.say(f"timing {self.steps} steps")
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(self.device)
            self._marks = [self._mark()]
        self._settle()

    def _settle(self) -> None:
        """From here on the next step is timed."""
        self._now = time.perf_counter()
        self._waited = self.run.feed.wait_seconds if self.run is not None else 0.0
        self._graphs = graphs()

    def _time(self, step: Step, logs: bool) -> None:
        assert self.run is not None
        self._marks.append(self._mark())
        made = graphs()
        self.timed.append(
            TimedStep(
                number=step.number,
                seconds=0.0,  # known when the device has come so far
                host_seconds=time.perf_counter() - self._now,
                data_wait=self.run.feed.wait_seconds - self._waited,
                real_tokens=int(step.real_tokens),
                processed_tokens=int(step.processed_tokens),
                label_tokens=int(step.label_tokens),
                happened=(LOG,) if logs else (),
                compilations=made - self._graphs,
                model_flops=self.run.journal.utilisation.of_step(step).model_flops or None,
            )
        )
        self._settle()

    def _timed_out(self) -> None:
        """Read the device's clock, once all steps are done."""
        assert self.run is not None
        self._wait()
        self.memory = of_plain(Memory, memory_of(self.device))
        took = [_between(a, b) for a, b in pairwise(self._marks)]
        every = self.run.ranks.gather(took)
        slowest = [max(each) for each in zip(*every, strict=True)]
        self.timed = [replace(one, seconds=seconds) for one, seconds in zip(self.timed, slowest, strict=True)]
        self.say(f"tracing {TRACED} steps")
        if self.snapshot is not None and self.device.type == "cuda":
            torch.cuda.memory._record_memory_history(max_entries=200_000)

    def _begin_trace(self, step: Step) -> None:
        run = self.run
        assert run is not None
        self._wait()
        facts = run.engagement.facts(run, step)
        tracer = Tracer(run.trainee.model, self.places, self.device)
        self._open.callback(setattr, run.feed, "around_wait", run.feed.around_wait)
        run.feed.around_wait = _waiting
        traced = self._open.enter_context(tracer.step(step.number, facts))
        run.engagement.marks = traced
        self._tracing = step, traced

    def _end_trace(self) -> None:
        assert self.run is not None
        assert self._tracing is not None
        step, traced = self._tracing
        self._tracing = None
        self._traces += 1
        self.run.engagement.marks = NOT_TRACING
        self._open.close()
        if traced.events is None or traced.where is None or traced.evidence is None:
            return  # another profiler was running: it saw this step, and would see the next one
        own = np.concatenate([np.zeros(0, np.int64), *(batch.rows for batch in step.micro_batches)])
        lengths, _ = self.run.plan.spans.attention_of(own)
        self.traced.append(
            Traced(
                number=step.number,
                events=traced.events,
                where=traced.where,
                micro_batches=traced.micro_batches,
                watched=tuple(sorted(traced.evidence.watched)),
                lengths=tuple(int(n) for n in lengths),
                real_tokens=int(step.real_tokens),
                processed_tokens=int(step.processed_tokens),
                label_tokens=int(step.label_tokens),
                facts=dict(traced.evidence.facts),
            )
        )
        if len(self.traced) == TRACED and self.snapshot is not None and self.device.type == "cuda":
            torch.cuda.memory._dump_snapshot(str(self.snapshot))
            torch.cuda.memory._record_memory_history(enabled=None)

    def _mark(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@contextmanager
def _waiting() -> Any:
    with record_function(DATA_MARK):
        yield


def _between(first: Any, second: Any) -> float:
    """Seconds."""
    if isinstance(first, float):
        return float(second - first)
    return float(first.elapsed_time(second)) / 1e3
