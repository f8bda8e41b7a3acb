"""Memory that runs out in the middle of a run: everything of the failed step is let go, and the step is taken again smaller.

Micro-batches only get smaller, by a fixed rule that every rank follows from the same facts, and a bounded number of times.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from dynotune.errors import TrainingError
from dynotune.plan.ladder import Ladder, round_down, round_up
from dynotune.plan.plan import Plan, Step
from dynotune.train.faults.draws import Draws
from dynotune.train.faults.explain import Explainer, Where
from dynotune.train.faults.shortage import Shortage, shortage_of
from dynotune.train.faults.tensors import MicroBatchSize
from dynotune.train.state import Progress

if TYPE_CHECKING:
    from dynotune.train.evaluate import Evaluator
    from dynotune.train.run import Run

Result = TypeVar("Result")

MOST_LOWERINGS = 8
"""In one process. At three quarters each time, a tenth of the tokens is left."""


@dataclass(slots=True)
class Memory:
    """What the loop runs its work in."""

    explainer: Explainer
    say: Callable[[str], None]
    phase: str = ""
    on_phase: Callable[[str], None] = lambda phase: None
    """Told of each phase that begins."""

    on_shortage: Callable[[], None] = lambda: None
    """Told of each attempt that ran out."""

    micro_batch: int = 0
    """Which one of the step is under way, from 0."""

    shortage: Shortage | None = None
    """Of the latest attempt, if it ran out of memory."""

    lowerings: int = 0
    explained: set[str] = field(default_factory=set)
    """Phases of which the whole explanation was given."""

    def attempt(self, phase: str, work: Callable[[], Result]) -> Result | None:
        """What `work` returns; None where memory ran out (`shortage`), with all that it had allocated free again.

        phase: where `work` begins; it may go on to others by `begin`.
        """
        self.micro_batch, self.shortage = 0, None
        self.begin(phase)
        try:
            return work()
        except (RuntimeError, MemoryError) as error:
            self.shortage = shortage_of(error)
            if self.shortage is None:
                raise
        # Only here is the error gone, and with it the frames of `work` that its traceback held, and the graph in them.
        self._free()
        self.on_shortage()
        return None

    def begin(self, phase: str) -> None:
        """From here on it is `phase` that goes on."""
        self.phase = phase
        self.on_phase(phase)

    def ran_out(self, step: Step) -> tuple[bool, bool]:
        """For the ranks to agree on: whether the attempt ran out, and whether a quarter less would not be enough."""
        if self.shortage is None:
            return False, False
        largest = max(batch.tokens for batch in step.micro_batches)
        return True, step.micro_batches[self.micro_batch].tokens <= _less(largest, far=False)

    def smaller_plan(self, run: "Run", step: Step, draws: Draws, far: bool) -> Plan | None:
        """The plan by which `step` is taken again, with everything as it was before it; None if nothing smaller is possible.

        far: halve the tokens instead of taking a quarter off.
        """
        run.update.optimizer.zero_grad(set_to_none=True)
        drew = Draws.now(run.device).moved_since(draws)
        draws.restore()
        self._free()
        plan = self._lowered(run.plan, far)
        if plan is None:
            return None
        assert plan.ladder is not None
        assert run.plan.ladder is not None
        self.lowerings += 1
        for line in self._explanation(self.where(run.plan, step), run.plan):
            self.say(line)
        again = (
            f"step {step.number} is taken again, from where it began, in micro-batches of up to {plan.ladder.top:,} tokens"
            f" instead of {run.plan.ladder.top:,}, and so are the steps behind it: the same examples, loss and gradient"
        )
        if drew:
            again += "; dropout draws over a micro-batch, so another layout draws other masks"
        self.say(f"{again}. To begin like this: `micro_batch_tokens: {plan.ladder.top}`")
        remember(run.trainee.progress, plan, run.device, step.number, self.shortage)
        return plan

    def evaluate(self, run: "Run", work: "Callable[[Evaluator, Ladder | None], Result]") -> Result:
        """What `work` returns; where memory runs out, of micro-batches of its own that are smaller than training's.

        Raises `TrainingError` if nothing smaller is possible.
        """
        evaluator = run.evaluator
        assert evaluator is not None
        while (result := self.attempt("evaluation", lambda: work(evaluator, run.plan.ladder))) is None:
            run.trainee.model.train()
            where = Where("evaluation", run.trainee.progress.step)
            lines = self._explanation(where, run.plan)
            most = evaluator.lower(run.plan.ladder)
            if most is None:
                raise TrainingError("\n".join(lines))
            for line in lines:
                self.say(line)
            self.say(f"evaluated again in micro-batches of up to {most:,} tokens; those of training stay as they are")
        return result

    def generate(self, run: "Run", work: Callable[[], list[Any]]) -> list[Any]:
        """What `work` returns; nothing where memory runs out, which is said."""
        rows = self.attempt("generation", work)
        if rows is not None:
            return rows
        run.trainee.model.train()
        for line in self._explanation(Where("generation", run.trainee.progress.step), run.plan):
            self.say(line)
        self.say("note: this evaluation has no samples; the run goes on")
        return []

    def must(self, phase: str, run: "Run", work: Callable[[], Result]) -> Result:
        """What `work` returns. Raises `TrainingError` where memory runs out: there is nothing to do smaller."""
        result = self.attempt(phase, work)
        if self.shortage is not None:
            raise TrainingError("\n".join(self.explain(Where(phase, run.trainee.progress.step or None), run.plan)))
        return result  # type: ignore[return-value]

    def in_optimizer(self, run: "Run", step: Step) -> list[str]:
        """What is to be said, and whether what was trained may be saved."""
        lines = self.explain(Where("optimizer", step.number), run.plan)
        if not run.update.stepping:
            return [*lines, "The weights are those of the step before."]
        if not run.trainee.progress.step:
            return [*lines, "It was the first step: nothing had been trained yet."]
        return [*lines, "The update had begun, so the weights on the device are not saved."]

    def explain(self, where: Where, plan: Plan | None) -> list[str]:
        """Everything that is known of the shortage."""
        if self.shortage is None:
            return ["out of memory on another rank, whose log says where and for what"]
        return self.explainer.lines(self.shortage, where, plan)

    def where(self, plan: Plan, step: Step) -> Where:
        """In which micro-batch of `step` the latest attempt failed."""
        batch = step.micro_batches[self.micro_batch]
        size = MicroBatchSize(batch.tokens, int(plan.spans.label_tokens[batch.rows].sum()), plan.ladder is not None)
        place = f"micro-batch {self.micro_batch + 1} of {len(step.micro_batches)}"
        return Where(self.phase, step.number, size, place)

    def _explanation(self, where: Where, plan: Plan) -> list[str]:
        """All of it once for each phase, then its first line."""
        lines = self.explain(where, plan)
        first = where.phase not in self.explained
        self.explained.add(where.phase)
        return lines if first else lines[:1]

    def _lowered(self, plan: Plan, far: bool) -> Plan | None:
        if plan.ladder is None or self.lowerings >= MOST_LOWERINGS:
            return None
        smaller = plan.executed(_less(plan.ladder.top, far))
        assert smaller.ladder is not None
        return smaller if smaller.ladder.top < plan.ladder.top else None

    def _free(self) -> None:
        gc.collect()
        if self.explainer.device.type == "cuda":
            torch.cuda.empty_cache()


def _less(tokens: int, far: bool) -> int:
    return round_down(tokens // 2 if far else tokens * 3 // 4)


def lower_ladder(ladder: Ladder, most: int | None, longest: int) -> int | None:
    """The next smaller most that documents outside the plan allow, the longest of `longest` tokens; None if none is."""
    least = round_up(longest)
    now = max(min(most or ladder.top, ladder.top), least)
    smaller = max(_less(now, far=True), least)
    return smaller if smaller < now else None


def remember(progress: Progress, plan: Plan, device: torch.device, step: int, shortage: Shortage | None) -> None:
    """Keep with the run's state what its device could not hold."""
    assert plan.ladder is not None
    progress.micro_batch_tokens, progress.device = plan.ladder.top, describe(device)
    facts = shortage.to_json() if shortage is not None else {"message": "on another rank"}
    progress.out_of_memory.append({"step": step, "micro_batch_tokens": plan.ladder.top, **facts})


def resumed(plan: Plan, progress: Progress, device: torch.device, say: Callable[[str], None]) -> Plan:
    """The plan as the run that is resumed had lowered it, on the same device."""
    most = progress.micro_batch_tokens
    if most is None or plan.ladder is None or plan.ladder.top <= most:
        return plan
    if progress.device != describe(device):
        say(
            f"note: on {progress.device} this run had lowered its micro-batches to {most:,} tokens when memory ran out;"
            f" here, on {describe(device)}, they hold up to {plan.ladder.top:,} again"
        )
        return plan
    lowered = plan.executed(most)
    say(f"micro-batches hold up to {most:,} tokens, to which this run lowered them when memory ran out on this device")
    return lowered


def describe(device: torch.device) -> str:
    """A device by what it can hold."""
    if device.type != "cuda":
        return device.type
    return f"{torch.cuda.get_device_name(device)} with {torch.cuda.mem_get_info(device)[1] / (1 << 30):.0f} GiB"
