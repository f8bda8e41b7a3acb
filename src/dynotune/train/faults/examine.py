"""Why a step was not finite: it is taken again from where it began, as it was, plainly, without one speed-up at a time, and
document by document. Nothing of it reaches the weights, and it ends when its time is over.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynotune.foreign import FOREIGN
from dynotune.plan.layout import MicroBatch
from dynotune.plan.plan import Step
from dynotune.train.faults.draws import Draws
from dynotune.train.faults.first_bad import FirstBad, Place
from dynotune.train.faults.shortage import shortage_of
from dynotune.train.faults.spoiled import spoiled_weights
from dynotune.train.faults.ways import AS_EXECUTED, Way, Ways

if TYPE_CHECKING:
    from dynotune.train.run import Run

SECONDS = 60.0
"""After which no other repetition begins."""

PACKED = "packed_execution"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a step, or one document of it, executed once more."""

    way: str
    loss: str = ""
    finite: bool | None = None
    """None: it could not be executed."""

    why_not: str = ""
    document: str = ""
    place: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Examination:
    """What was found, in the order in which it was tried."""

    outcomes: list[Outcome] = field(default_factory=list)
    culprit: str = ""
    """For people: what is most likely at fault. Empty where nothing can be said."""

    speedup: str = ""
    """The one without which alone the step is finite, by name; empty where it is none or several, or not all were tried."""

    facts: list[str] = field(default_factory=list)
    place: dict[str, Any] | None = None
    not_done: list[str] = field(default_factory=list)
    documents: int = 0
    """Of the step, on this rank."""

    alone: list[str] = field(default_factory=list)
    """Places of those of them that are not finite by themselves, on the plain path."""

    where: str = ""
    """For people: in which part of the model it happens to them."""

    def weight(self) -> int:
        """How much it says: of several ranks, most only took documents of which nothing is wrong."""
        executed = [one.finite for one in self.outcomes if one.way.startswith(AS_EXECUTED)]
        if not executed or executed[0] is None:
            return 1
        return 2 if False in executed else 0

    def lines(self) -> list[str]:
        said = [f"Likely culprit: {self.culprit}." if self.culprit else "The step was examined: no culprit was found."]
        said += [f"  {fact}" for fact in self.facts]
        return said + [f"  not examined: {what}" for what in self.not_done]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Examination":
        return cls(**{**found, "outcomes": [Outcome(**one) for one in found["outcomes"]]})


class _Repeat:
    """Executes a step's documents again."""

    def __init__(self, run: "Run", step: Step, draws: Draws, place_of: Callable[[int], str]) -> None:
        self.run, self.step, self.draws, self.place_of = run, step, draws, place_of
        self.denominator = run.objective.counts(run.plan.spans, step.rows)[0]
        self.ends = time.perf_counter() + SECONDS
        self.longest = 0.0

    def in_time(self) -> bool:
        """Whether another repetition, should it take as long as the longest so far, ends before the time is over."""
        return time.perf_counter() + self.longest < self.ends

    def by(
        self,
        way: Way,
        batches: Sequence[MicroBatch],
        document: str = "",
        watch: FirstBad | None = None,
        ahead: bool = False,
    ) -> Outcome:
        """ahead: micro-batches come from the run's feed, in its way; else each is made when it is its turn."""
        began, optimizer = time.perf_counter(), self.run.update.optimizer
        self.run.ranks.at(self.step.number, "the examination of a step that is not finite")
        optimizer.zero_grad(set_to_none=True)
        self.draws.restore()
        why_not, loss, finite = "", "", None
        try:
            if watch is not None:
                with watch:
                    loss, finite = self._execute(way, self._one_by_one(way, batches))
            elif ahead:
                with closing(self.run.feed.batches(batches)) as fed:
                    loss, finite = self._execute(way, fed)
            else:
                loss, finite = self._execute(way, self._one_by_one(way, batches))
        except FOREIGN as error:
            shortage = shortage_of(error)
            why_not = "out of memory" if shortage else f"{type(error).__name__}: {str(error).strip()[:200]}"
        optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - began
        self.longest = max(self.longest, seconds)
        place = str(watch.place) if watch is not None and watch.place is not None else ""
        return Outcome(way.name, loss, finite, why_not, document, place, round(seconds, 3))

    def _one_by_one(self, way: Way, batches: Sequence[MicroBatch]) -> Iterator[Any]:
        """On the device."""
        for batch in batches:
            documents = self.run.feed.items.of(batch)
            for some, tokens in self._laid_out(way, documents, batch.tokens):
                host = way.path.host_batch(some, tokens, pin=False)
                yield host.unpack(host.buffer.to(self.run.device))

    def _execute(self, way: Way, batches: Iterable[Any]) -> tuple[str, bool]:
        """batches: micro-batches on the device, as the way's path lays them out."""
        run = self.run
        total = torch.zeros((), device=run.device)
        for on_device in batches:
            with way.around():
                with way.autocast():
                    loss = way.loss(on_device) / self.denominator
                if loss.requires_grad:
                    loss.backward()
            total += loss.detach()
        gradients = [p.grad for p in run.update.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        return f"{float(total):.6g}", bool(torch.isfinite(total) & torch.isfinite(norm))

    def _laid_out(self, way: Way, items: Sequence[Any], tokens: int) -> Iterator[tuple[Sequence[Any], int]]:
        if way.path is self.run.path:
            yield items, tokens
        else:  # the plain path takes one at a time
            for one in items:
                yield [one], way.path.tokens_of(one)


def examine(run: "Run", ways: Ways, step: Step, draws: Draws, place_of: Callable[[int], str]) -> Examination:
    """Take `step` again; weights, states and counters stay as they are, random states and gradients do not.

    place_of: where the example of a row index stands in the data.
    """
    found = _taken_again(run, ways, step, draws, place_of)
    if said := spoiled_weights(run.trainee.model, ways.installed, step.number):
        found.facts.append(said)
    return found


def _taken_again(run: "Run", ways: Ways, step: Step, draws: Draws, place_of: Callable[[int], str]) -> Examination:
    found, repeat = Examination(), _Repeat(run, step, draws, place_of)
    found.documents = sum(len(batch.rows) for batch in step.micro_batches)
    watch = FirstBad(run.trainee.model)
    run.trainee.model.train()
    again = repeat.by(ways.as_executed(), step.micro_batches, watch=watch)
    found.outcomes.append(again)
    if again.finite:
        # Where modules are watched layers are launched, and kernels between modules step aside for those who look.
        again = repeat.by(ways.as_executed(), step.micro_batches)
        found.outcomes.append(replace(again, way=f"{AS_EXECUTED}, unwatched"))
        if again.finite is False and ways.replays:
            launched = repeat.by(ways.launched(), step.micro_batches)
            found.outcomes.append(launched)
            if launched.finite:
                found.culprit, found.speedup = "step_graphs: launched one by one the step is finite", "step_graphs"
                return found
    if again.finite is None:
        found.not_done.append(f"the step could not be taken again: {again.why_not}")
        return found
    if again.finite and _is_spoiled_by_prefetch(repeat, ways, found):
        return found
    if again.finite:
        found.culprit = "nothing that repeats: taken again from the same state, the step is finite"
        found.facts.append(
            "a callback or hook that acts once, a kernel whose result is not the same each time, or the device itself"
            if run.ranks.world == 1
            else "a hook that acts once, a kernel that varies, the device, or documents of another rank"
        )
        return found
    if watch.place is not None:
        found.facts.append(f"as executed, {watch.place}")
        found.place = watch.place.to_json()
    plainly = _plainly(repeat, ways, found)
    if plainly is None or plainly.finite is None:
        return found
    if plainly.finite:
        _which_speed_up(repeat, ways, found)
    else:
        _which_document(repeat, ways, found, watch.place)
    return found


def _is_spoiled_by_prefetch(repeat: _Repeat, ways: Ways, found: Examination) -> bool:
    """Micro-batch by micro-batch the step is finite: whether it is not where they are made ahead, as the run has them."""
    prefetch = ways.installed.get("prefetch")
    if prefetch is None:
        return False
    if not repeat.in_time():
        found.not_done.append("with micro-batches that are made ahead: no time was left")
        return False
    outcome = repeat.by(ways.as_executed(), repeat.step.micro_batches, ahead=True)
    found.outcomes.append(replace(outcome, way=f"{AS_EXECUTED}, made ahead"))
    if outcome.finite is not False:
        return False
    found.culprit, found.speedup = "prefetch: with micro-batches made one by one the step is finite", prefetch.name
    return True


def _plainly(repeat: _Repeat, ways: Ways, found: Examination) -> Outcome | None:
    if not repeat.in_time():
        found.not_done.append("the plain path: no time was left")
        return None
    outcome = repeat.by(ways.plain(), repeat.step.micro_batches)
    found.outcomes.append(outcome)
    if outcome.finite is None:
        found.not_done.append(f"the plain path: {outcome.why_not}")
    return outcome


def _which_speed_up(repeat: _Repeat, ways: Ways, found: Examination) -> None:
    """Plainly the step is finite: leave speed-ups out one at a time."""
    named, all_tried = [], True
    for way in ways.without_one():
        if not repeat.in_time():
            found.not_done.append(f"without {way.name}: no time was left")
            all_tried = False
            continue
        outcome = repeat.by(way, repeat.step.micro_batches)
        found.outcomes.append(replace(outcome, way=f"without {way.name}"))
        if outcome.finite:
            named.append(way.name)
        all_tried &= outcome.finite is not None
    named = narrowed(named, {one.name: one.speedup.requires for one in ways.installed})
    if named:
        found.culprit = f"{' or '.join(named)}: without it the step is finite"
        # Without packed execution its attention is gone, too.
        narrower = [name for name in named if name != PACKED] or named
        found.speedup = narrower[0] if len(narrower) == 1 and all_tried else ""
    else:
        found.culprit = "the speed-ups together: on the plain path the step is finite"
    found.facts.append("`packed_execution: off` takes the plain path until it is mended; please report it")


def narrowed(named: Sequence[str], requires: Mapping[str, Sequence[str]]) -> list[str]:
    """Of speed-ups without each of which a step is finite those that no other one needs: what needs another is gone with it,
    and without the first alone the other one is seen to be right."""
    needed = {other for name in named for other in requires.get(name, ()) if name != other}
    return [name for name in named if name not in needed or name == PACKED]


def _which_document(repeat: _Repeat, ways: Ways, found: Examination, executed: Place | None) -> None:
    """Plainly it is not finite either: each document by itself, and where in the model it happens."""
    rows = [int(row) for batch in repeat.step.micro_batches for row in batch.rows]
    alone = []
    place: Place | None = None
    for tried, row in enumerate(rows):
        if not repeat.in_time():
            found.not_done.append(f"{len(rows) - tried} of {len(rows)} documents: no time was left")
            break
        watch = FirstBad(repeat.run.trainee.model)
        only = np.array([row])
        batch = [MicroBatch(only, int(repeat.run.plan.spans.lengths_of(only)[0]))]
        outcome = repeat.by(ways.plain(), batch, repeat.place_of(row), watch)
        found.outcomes.append(outcome)
        if outcome.finite is False:
            alone.append(repeat.place_of(row))
            place = place or watch.place
    place = place or executed
    found.alone, found.where = alone, f", {place}" if place is not None else ""
    if place is not None:
        found.place = place.to_json()
    found.culprit = _blame(alone, len(rows), found.where)
    if place == executed:
        found.facts.clear()  # said already


def verdict(every: Sequence[Examination]) -> Examination:
    """What the examinations of all ranks say together: a rank saw its own documents only."""
    told = max(every, key=Examination.weight)
    if not told.alone:
        return told
    alone = [place for one in every for place in one.alone]
    return replace(told, culprit=_blame(alone, sum(one.documents for one in every), told.where))


def _blame(alone: list[str], documents: int, where: str) -> str:
    """alone: places of those of the step's `documents` that are not finite by themselves."""
    if not alone:
        return f"no document alone, nor a speed-up{where}"
    if len(alone) == documents > 1:
        return f"the model's weights rather than the data: every document of the step is not finite alone{where}"
    listed = ", ".join(alone[:4]) + (f" and {len(alone) - 4} more" if len(alone) > 4 else "")
    return f"document{'s' * (len(alone) > 1)} {listed}{where}"
