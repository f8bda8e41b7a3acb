"""A run ended by a step that is not finite: back to the state before it, saved, and the step examined.

The device keeps every update behind such a step from the weights (`Update`), so they still are those of the step before
when the host reads of it, some steps later. What the host itself has moved on is remembered for each step and put back.
"""

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dynotune.errors import TrainingError
from dynotune.speedups.contract import Speedup
from dynotune.train.faults.draws import Draws
from dynotune.train.faults.examine import Examination, examine, verdict
from dynotune.train.faults.ways import Ways
from dynotune.train.meter import StepRecord

if TYPE_CHECKING:
    from dynotune.train.run import Run

REMEMBERED = 20
"""Steps whose learning rate and gradient norm the report shows."""

PLACES = 8
"""Examples that the terminal names; the file has all."""


@dataclass(frozen=True, slots=True)
class Before:
    """What a step moves on the host: as it stood before step `number`."""

    number: int
    draws: Draws
    schedule: dict[str, Any]
    rates: list[float]

    @classmethod
    def now(cls, number: int, draws: Draws, schedule: Any) -> "Before":
        kept = {name: value for name, value in vars(schedule).items() if name not in ("optimizer", "lr_lambdas")}
        moving = {name: copy.copy(value) for name, value in kept.items() if isinstance(value, list | dict | deque)}
        return cls(number, draws, kept | moving, [group["lr"] for group in schedule.optimizer.param_groups])

    def restore(self, run: "Run") -> None:
        schedule = run.trainee.schedule
        vars(schedule).update(self.schedule)
        for group, rate in zip(schedule.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate
        run.trainee.progress.step = self.number - 1
        run.update.optimizer.zero_grad(set_to_none=True)
        self.draws.restore()


@dataclass(slots=True)
class NonFinite:
    """What is needed to go back, and what to do then."""

    ways: Ways
    keep_report: Callable[[dict[str, Any]], None]
    place_of: Callable[[int], str]
    """Where the example of a row index stands in the data."""

    remember: Callable[[Speedup, str], None] = lambda speedup, reason: None
    """Has this machine leave a speed-up out from now on, for a reason that is the end of a sentence."""

    history: deque[StepRecord] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _before: deque[Before] = field(default_factory=deque)

    def taken(self, number: int, draws: Draws, schedule: Any) -> None:
        """Step `number` was carried out: 4 microseconds beside the draws."""
        self._before.append(Before.now(number, draws, schedule))

    def passed(self, steps: list[StepRecord], ends: StepRecord | None) -> None:
        """These steps were read; nobody will go back to before those of them that come before `ends`."""
        for record in steps:
            if ends is not None and record.step.number >= ends.step.number:
                break
            if record.finite:
                self.history.append(record)
            while self._before and self._before[0].number <= record.step.number:
                self._before.popleft()

    def back_to(self, run: "Run", number: int) -> Before:
        """Everything as it was before step `number`."""
        before = next(one for one in self._before if one.number == number)
        before.restore(run)
        return before

    def report(self, run: "Run", record: StepRecord, before: Before) -> list[str]:
        """Examine the step, on every rank its own documents; write `nonfinite.json`; what the terminal is told."""
        examination = examine(run, self.ways, record.step, before.draws, self.place_of)
        before.restore(run)
        every = [Examination.from_json(found) for found in run.ranks.gather(examination.to_json())]
        if run.ranks.is_first:
            self.keep_report(self._to_json(record, every))
        told = verdict(every)
        return told.lines() + self._left_out_from_now_on(told.speedup, record.step.number, run.ranks.is_first)

    def _left_out_from_now_on(self, name: str, number: int, is_first: bool) -> list[str]:
        """A culprit that nobody demanded is not tried again on this machine; in words."""
        one = self.ways.installed.get(name)
        if one is None or one.setting != "auto":
            return []
        if is_first:
            self.remember(one.speedup, f"step {number} of a run was not finite with it, and finite without it")
        return [
            f"  {name} is left out of later runs of its kind on this machine; `dynotune engaged --forget {name}` has it"
            " tried again"
        ]

    def _to_json(self, record: StepRecord, every: list[Examination]) -> dict[str, Any]:
        steps = [
            {"step": r.step.number, "learning_rate": r.learning_rate, "loss": r.loss, "grad_norm": r.grad_norm}
            for r in self.history
        ]
        return {
            "step": record.step.number,
            "loss": str(record.loss),
            "grad_norm": str(record.grad_norm),
            "learning_rate": record.learning_rate,
            "examples": [self.place_of(int(row)) for row in record.step.rows],
            "examinations": [one.to_json() for one in every],
            "steps_before": steps,
        }


def stopped_at(run: "Run", record: StepRecord, keep: Callable[["Run"], None]) -> TrainingError:
    """The error that ends the run at a step that is not finite, with the step before it saved and this one examined."""
    number, faults = record.step.number, run.nonfinite
    before = faults.back_to(run, number)
    unsaved = ""
    try:
        keep(run)
    except TrainingError as error:  # the reason that the run ends must not be lost over it
        unsaved = f"\n{error}"
    run.display.say(f"step {number} is not finite: it is taken again to find out why")
    found = faults.report(run, record, before)
    places = [faults.place_of(int(row)) for row in record.step.rows]
    shown = ", ".join(places[:PLACES]) + (f" and {len(places) - PLACES} more" if len(places) > PLACES else "")
    lines = [
        f"Step {number} is not finite (loss {record.loss}, gradient norm {record.grad_norm}). It was kept away from the"
        f" weights. Its examples: {shown}.",
        *found,
        run.journal.what_to_do(number),
        run.journal.where_to_go_on(number - 1) + unsaved,
    ]
    return TrainingError("\n".join(lines))
