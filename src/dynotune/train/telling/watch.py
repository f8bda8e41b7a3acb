"""Warns while a run goes on: each sign once, with its figure and what to do."""

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dynotune.measure.beside.seen import MachineSeen
from dynotune.measure.periods import LEAST_CYCLES, Period, find_period, find_periods, middle, what_has_it, without_work
from dynotune.measure.signs.cycle import cycle
from dynotune.measure.signs.record import Sign, Stretch
from dynotune.measure.signs.registry import signs_of
from dynotune.measure.wall import Kind, training
from dynotune.measure.words import WARM_UP_STEPS
from dynotune.train.meter import StepRecord, WindowRecord

NAME = "warnings.jsonl"

KEPT = 512
"""Steps in which a period is looked for."""

PARTS = {"data": Kind.DATA_WAIT, "host": Kind.HOST, "compilation": Kind.COMPILE}

ASIDE = {"evaluation": Kind.EVALUATION, "saving": Kind.CHECKPOINT}
"""What has seconds of its own beside training, in the account of the step behind it."""

SAME = 0.8
"""Share of its slow steps with which a slow-down comes in the steps of another."""


class Watch:
    """Of one process of a run. Steps come by `take`, rows of metrics by `judge`, what else happens by `mark`.

    Nothing is told before `begin`: in a bench, which judges its arms itself, nobody watches.
    """

    def __init__(self, tell: Callable[[int, Sign], None], pairs: bool = False) -> None:
        """tell: shows and keeps a sign that is seen for the first time, at a step. pairs: as `Stretch`."""
        self.tell, self.pairs = tell, pairs
        self.told: set[str] = set()
        self._periods: set[int] = set()
        """Of slow-downs of training that were found so far."""

        self._steps: list[StepRecord] = []
        """Behind the warm-up, the latest ones."""

        self._seconds: list[float] = []
        """Of training in each of them."""

        self.own_seconds = 0.0
        """What watching took of the host so far: processor time."""

        self._seen = 0
        self._next_look = 64
        self._sums: dict[str, float] = defaultdict(float)
        self._happened: dict[str, set[int]] = defaultdict(set)
        self._number = 0
        self._watches = False

    def at(self, number: int) -> None:
        """Step `number` is taken: what happens from here on is in the time of the next one."""
        self._number = number

    def mark(self, what: str) -> None:
        """Something happened that a period may be matched with."""
        self._happened[what].add(self._number + 1)

    def begin(self) -> None:
        """From here on what is seen is told, and collections of garbage that go through everything are marked."""
        self._watches = True
        self._happened[
            "garbage collection"
        ].clear()  # there from now on: a collection may come while all are gone through
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        """May be called twice."""
        self._watches = False
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2:
            self.mark("garbage collection")

    def take(self, window: WindowRecord) -> None:
        """Count a window, and look for a period now and then."""
        began = time.thread_time()
        self._take(window)
        self.own_seconds += time.thread_time() - began

    def _take(self, window: WindowRecord) -> None:
        if self._watches:
            warming_up = max(0, WARM_UP_STEPS - self._seen)
            self._seen += len(window.steps)
            self._sums["nonfinite"] += sum([not record.finite for record in window.steps])
            self._count(window.steps[warming_up:])
            del self._steps[:-KEPT], self._seconds[:-KEPT]
        if len(self._steps) >= self._next_look or (len(self._steps) == KEPT and self._seen >= self._next_look):
            self._next_look = 2 * self._next_look if self._next_look < KEPT else self._seen + KEPT
            self._look_for_a_period()
            for at in list(self._happened.values()):
                at.difference_update([number for number in list(at) if number < self._steps[0].step.number])

    def _count(self, steps: Sequence[StepRecord]) -> None:
        seconds = [training(record.account) for record in steps]
        self._steps += steps
        self._seconds += seconds
        data_wait = host = 0.0
        real = processed = known = caught_up = 0
        sums = self._sums
        for record in steps:
            account, step = record.account, record.step
            data_wait += account.get(Kind.DATA_WAIT, 0.0)
            host += account.get(Kind.HOST, 0.0)
            real += step.real_tokens
            processed += step.processed_tokens
            if record.compiled:
                sums["compile"] += account.get(Kind.COMPILE, 0.0)
                sums["graphs"] += record.compiled
                sums["recompiled"] += 1
            if record.caught_up is not None:
                known += 1
                caught_up += record.caught_up
        sums["steps"] += len(steps)
        sums["seconds"] += sum(seconds)
        sums["data_wait"] += data_wait
        sums["host"] += host
        sums["real"] += real
        sums["processed"] += processed
        sums["known"] += known
        sums["caught_up"] += caught_up

    def stretch(self, row: Mapping[str, Any], machine: MachineSeen, retries: int) -> Stretch:
        """All of this process behind its warm-up, with the machine as it was lately."""
        sums = self._sums
        return Stretch(
            steps=int(sums["steps"]),
            seconds=sums["seconds"],
            data_wait=sums["data_wait"],
            host=sums["host"],
            caught_up=sums["caught_up"] / sums["known"] if sums["known"] else None,
            pairs=self.pairs,
            recompiled_steps=int(sums["recompiled"]),
            graphs=int(sums["graphs"]),
            compile=sums["compile"],
            nonfinite_steps=int(sums["nonfinite"]),
            fill=sums["real"] / sums["processed"] if sums["processed"] else None,
            headroom=row.get("memory/headroom"),
            headroom_gib=row.get("memory/headroom_gib"),
            retries=retries,
            samples=machine.samples,
            training_samples=machine.training_samples,
            utilisation=machine.training_utilisation,
            utilisation_low=machine.training_low,
            throttled=machine.throttled,
            sm_mhz=machine.sm_mhz,
            other_processes=machine.other_processes,
        )

    def judge(self, row: Mapping[str, Any], machine: MachineSeen, retries: int = 0) -> None:
        """At a row of metrics. retries: of the allocator behind the warm-up."""
        began = time.thread_time()
        signs = signs_of(self.stretch(row, machine, retries)) if self._watches else ()
        self.own_seconds += time.thread_time() - began
        for sign in signs:
            self._tell(sign)

    def _look_for_a_period(self) -> None:
        first = self._steps[0].step.number
        numbers = [record.step.number - first for record in self._steps]
        if numbers != list(range(len(numbers))):
            return
        aside = self._aside()
        tokens = [record.step.processed_tokens for record in self._steps]
        last = first + len(numbers)
        happened = {
            name: [number - first for number in list(at) if first <= number < last]
            for name, at in self._happened.items()
        }
        parts = {name: self._seconds_of(kind) for name, kind in PARTS.items()}
        found = [
            (one, _cause(one, happened, parts))
            for one in find_periods(without_work(self._seconds, tokens).tolist())
            if not any(_comes_behind(one, other) for other, _ in aside)
        ]
        of: dict[str, list[Period]] = defaultdict(list)
        for one, cause in (*aside, *found):
            if cause or not any(abs(one.every - other) <= 1 for other in self._periods):  # else told with its cause
                of[cause].append(one)
        self._periods.update([one.every for one, _ in found])
        for cause, periods in sorted(of.items(), key=lambda one: -max(period.share for period in one[1])):
            self._tell(cycle(cause, periods))

    def _aside(self) -> list[tuple[Period, str]]:
        """Slow-downs by what is no training. Each is looked for in its own seconds, since they are known: beside an
        evaluation of a second, whose length wanders by a tenth, a cycle in steps of 10 ms would not be seen."""
        usual = middle(np.asarray(self._seconds))
        found = []
        for name, kind in ASIDE.items():
            seconds = self._seconds_of(kind)
            if sum([each > 0 for each in seconds]) >= LEAST_CYCLES:
                one = find_period([usual + each for each in seconds])
                found += [(one, name)] if one is not None else []
        return found

    def _seconds_of(self, kind: Kind) -> list[float]:
        return [one.account.get(kind, 0.0) for one in self._steps]

    def see(self, sign: Sign) -> None:
        """Something is wrong in the step that is being taken: no row of metrics is waited for."""
        if self._watches:
            self._tell(sign, self._number + 1)

    def _tell(self, sign: Sign, number: int | None = None) -> None:
        if sign.name not in self.told:
            self.told.add(sign.name)
            self.tell(self._number if number is None else number, sign)


def _comes_behind(one: Period, aside: Period) -> bool:
    """Whether it is the lesser part of what an evaluation or a checkpoint costs: training is slower behind them, with caches
    cold, and a row that is written in the same steps has no part in that."""
    both = len(set(one.indices).intersection(aside.indices))
    return both >= SAME * len(one.indices) and one.extra < aside.extra


def _cause(one: Period, happened: Mapping[str, Sequence[int]], parts: Mapping[str, Sequence[float]]) -> str:
    """Logging, evaluation and saving often share their steps: of these logging is named where the host's seconds hold the
    slow-down, in which all of its work is, and else the other."""
    cause = what_has_it(one, happened, parts)
    if cause != "logging" or what_has_it(one, {}, {"host": parts["host"]}):
        return cause
    return what_has_it(one, {name: happened.get(name, ()) for name in ASIDE}, {}) or cause
