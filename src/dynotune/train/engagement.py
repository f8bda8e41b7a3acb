"""Whether what was installed runs: a training step is traced and judged; what does not run is taken out or stops the run.

The step is the second that this process takes, since the first one compiles; where there is only one, that. It counts as
training. If something was taken out, the next step is traced once more. Of many micro-batches a few are traced, and the
update.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from dynotune.errors import ConfigError
from dynotune.measure.clock import WindowClock
from dynotune.measure.evidence import Evidence, Phase
from dynotune.measure.products import experts_of
from dynotune.measure.traces.step import NOT_TRACING, Sample, StepMarks, TracedStep, Tracer
from dynotune.measure.wall import Kind
from dynotune.model.base import base_of
from dynotune.model.compiled.layers import decoder_layers
from dynotune.parallel.ranks import Ranks
from dynotune.plan.plan import Step
from dynotune.speedups.choose import Decision
from dynotune.speedups.contract import No, Scope
from dynotune.speedups.expectation import Expectation, Expected, Observation, Verdict
from dynotune.speedups.failed import keep_failed
from dynotune.speedups.installed import Installed
from dynotune.speedups.judge import judge
from dynotune.speedups.left_out import modules_of
from dynotune.speedups.proof import Proof
from dynotune.speedups.remembered import Remembered
from dynotune.speedups.whole_step import ADVICE, Presence, Unwanted, unwanted_in, worst
from dynotune.train.eight_bits import states_of_8_bits
from dynotune.train.traced_part import traced_part

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from dynotune.train.run import Run

PROOFS = 2
"""Steps that are traced at most."""

WORST_FIRST = (Verdict.NOT_ENGAGED, Verdict.PARTIAL, Verdict.UNKNOWN, Verdict.ENGAGED)


class Engagement:
    """Of one run. `marks` is what the loop puts around its phases."""

    def __init__(
        self,
        installed: Installed,
        device: torch.device,
        ranks: Ranks,
        remembered: Remembered,
        keep: Callable[[Proof], None],
        say: Callable[[str], None],
    ) -> None:
        """keep: writes a proof down, and shows it."""
        self.installed, self.device, self.ranks = installed, device, ranks
        self.remembered, self.keep, self.say = remembered, keep, say
        self.marks: StepMarks = NOT_TRACING
        self.left = PROOFS
        self.proof: Proof | None = None
        self.hears: Callable[[TracedStep], None] | None = None
        """Told of a traced step besides: what is in it is too much to be kept."""

        self.whole = False
        """Whether all micro-batches are traced: for who asks what else the step is spent on. It takes many times as long."""

        self._warned: set[str] = set()
        self._first: int | None = None
        self._evidence: Evidence | None = None

    def due(self, number: int, last: int) -> bool:
        """Whether step `number` is to be traced, in a run whose last step is `last`."""
        if self._first is None:
            self._first = number
        return self.left > 0 and (number > self._first or number == last)

    @contextmanager
    def tracing(self, run: "Run", step: Step, clock: WindowClock) -> Iterator[None]:
        """Inside, the step is traced. Training time runs inside, not while the trace is begun and read."""
        sample = None if self.whole else traced_part(step, run.plan.spans)
        facts = self.facts(run, step, sample)
        self._evidence = None
        waited, ahead = run.feed.wait_seconds, run.feed.made_ahead
        clock.stop()
        with ExitStack() as around:
            # For the proof, kernels are to be seen at the modules that they are of. Whoever traces later sees what runs.
            if self.left > 0:
                around.enter_context(self.installed.site.one_by_one())
            tracer = Tracer(run.trainee.model, self._places(run.trainee.model), self.device)
            beside = partial(clock.within, Kind.PROOF)
            marks = around.enter_context(tracer.step(step.number, facts, sample, beside))
            clock.start()
            self.marks = marks
            try:
                yield
            finally:
                self.marks = NOT_TRACING
                facts["waits"] = run.feed.wait_seconds - waited
                facts["made_ahead"] = run.feed.made_ahead - ahead
                if self.installed.get("eight_bit_optimizer") is not None:
                    facts["states_of_8_bits"] = states_of_8_bits(run.update.optimizer)
                clock.stop()
        self._evidence = marks.evidence
        if self.hears is not None:
            self.hears(marks)
        clock.start()

    def conclude(self, run: "Run") -> list[str]:
        """Judge the step that was traced. What is `auto` and does not run is taken out and remembered; returns why the run
        must stop, where something is `on` and does not."""
        if self._evidence is None:
            return []
        self.left -= 1
        evidence, self._evidence = self._evidence, None
        expected = {one.name: self.installed.expectations(one) for one in self.installed}
        every = {one.name: self._observed(one, evidence) for one in self.installed}
        stop: list[str] = []
        changed: list[Decision] = []
        for one in list(self.installed):
            seen = every.get(one.name)
            if seen is None or seen.verdict is Verdict.ENGAGED:
                continue
            if one.setting == "on":
                # A step whose micro-batches hold a document each looks the same packed and plain, and is the same.
                alike = 0 < evidence.facts["documents"] <= evidence.micro_batches
                cannot_be_seen = (one.speedup.scope is Scope.PLAN and alike) or one.speedup.shown_by_steps_before
                not_updated = run.update.left_out and _of_updates(expected[one.name])  # the step was not finite
                if not (seen.verdict is Verdict.UNKNOWN and cannot_be_seen) and not not_updated:
                    stop.append(_why_stop(one, seen))
            elif seen.verdict is Verdict.NOT_ENGAGED:
                if one.speedup.scope in (Scope.PLAN, Scope.PROCESS):
                    stop.append(self._cannot_leave(one, seen))
                else:
                    try:
                        changed += self._take_out(run, one, seen)
                    except ConfigError as error:  # what is `on` needs it. Every rank decides alike, so all of them stop
                        stop.append(str(error))
        if self.proof:  # what was taken out since is told of, too
            every, expected = {**self.proof.observations, **every}, {**self.proof.expectations, **expected}
        self.proof = Proof(self.installed, evidence, every, expected, self._unwanted(evidence))
        self.keep(self.proof)
        if not changed:
            self.left = 0
        return [*dict.fromkeys(stop)]  # of two that are taken out, both come upon the same one that is `on`

    def _observed(self, one: Decision, evidence: Evidence) -> Observation:
        """What the step says of one speed-up: of several ranks the worst. One that had no document saw nothing to say."""
        assert one.installed is not None
        mine = judge(self.installed.expectations(one), evidence, one.installed.places, one.installed.left_out)
        told = self.ranks.gather(mine.to_json() if evidence.facts["documents"] else None)
        every = [Observation.from_json(seen) for seen in told if seen is not None]
        if not every:
            return replace(mine, verdict=Verdict.UNKNOWN, evidence="what was traced held no document")
        return min(every, key=lambda seen: WORST_FIRST.index(seen.verdict))

    def _unwanted(self, evidence: Evidence) -> tuple[Unwanted, ...]:
        """What the step should not hold, whichever speed-ups stand: of several ranks the worst. A warning is told once."""
        mine = unwanted_in(evidence)
        told = self.ranks.gather([one.to_json() for one in mine] if evidence.facts["documents"] else None)
        every = [[Unwanted.from_json(one) for one in of_rank] for of_rank in told if of_rank is not None]
        found = worst(every) if every else mine
        for one in found:
            if one.presence is Presence.FOUND and one.what not in self._warned:
                self._warned.add(one.what)
                self.say(f"warning: step {evidence.step} has {one.what}: {one.evidence}. {ADVICE[one.what]}")
        return found

    def _take_out(self, run: "Run", one: Decision, seen: Observation) -> list[Decision]:
        """Returns all that changed. Raises `ConfigError` where something that is `on` cannot be without it."""
        reason = _in_words(seen)
        self.say(
            f"{one.name} was not seen to run: {reason}. It is taken out, here and in later runs of its kind on this machine"
        )
        if self.ranks.is_first:
            keep_failed(self.remembered, one.speedup, self.installed.site.context, reason, seen.evidence)
        changed = self.installed.remove(
            one, No(f"it was not seen to run in step {run.trainee.progress.step}: {reason}")
        )
        for other in changed:
            if other.installed is not None and other is not one:
                self.say(f"{other.name} runs in its place")
        run.update.set_fused(self.installed.site.fused_update)
        run.feed.ahead = self.installed.site.ahead
        return changed

    def _cannot_leave(self, one: Decision, seen: Observation) -> str:
        if self.ranks.is_first:
            keep_failed(self.remembered, one.speedup, self.installed.site.context, _in_words(seen), seen.evidence)
        return (
            f"{one.name} was not seen to run: {_in_words(seen)}. It cannot be taken out of a run that goes on. This machine"
            " remembers it: begun again, the run goes without it."
        )

    def _places(self, model: "PreTrainedModel") -> set[str]:
        """Where something is expected; where a speed-up was left out and another path runs; and every layer, for the place
        of what should not be there."""
        expected = [e for one in self.installed for e in self.installed.expectations(one) if isinstance(e, Expected)]
        left_out = {name for one in self.installed if one.installed for name in modules_of(one.installed.left_out)}
        known = {name for name, _ in model.named_modules(remove_duplicate=False)}
        return {place for e in expected for place in e.at} | decoder_layers(model).keys() | (left_out & known)

    def facts(self, run: "Run", step: Step, sample: Sample | None = None) -> dict[str, Any]:
        """What the run knows of this rank's part of a step, for `Evidence.facts`. sample: of what is to be traced of it;
        None: all."""
        head = run.trainee.model.get_output_embeddings()
        units = run.plan.spans
        traced = range(len(step.micro_batches)) if sample is None else sample.numbers
        batches = [step.micro_batches[i] for i in traced]
        lengths = [units.attention_of(batch.rows)[0] for batch in batches]
        sequences = [int(of_batch.sum()) for of_batch in lengths]
        return {
            "micro_batches": len(step.micro_batches),
            "traced_micro_batches": [*traced],
            "documents": sum(len(of_batch) for of_batch in lengths),
            "sequence_tokens": sum(sequences),
            "sequences": sequences,
            "laid_out_tokens": sum(batch.real_tokens for batch in batches),
            "labels": [int(units.label_tokens[batch.rows].sum()) for batch in batches],
            "tokens": [batch.tokens for batch in batches],
            "real_tokens": step.real_tokens,
            "label_tokens": step.label_tokens,
            "vocabulary": None if head is None else int(head.weight.shape[0]),
            "experts": experts_of(base_of(run.trainee.model).config.get_text_config()),
            "update_waits": run.update.waits_for_device,
            "compute": str(self.installed.site.context.compute).removeprefix("torch."),
        }


def _why_stop(one: Decision, seen: Observation) -> str:
    said = f"`{one.asked_by}`: {one.name} was {seen.verdict} in the step that was traced: {_in_words(seen)}."
    if key := one.speedup.follows:
        return f"{said} Take another `{key}`, or another version of its package."
    return f"{said} Write `speedups: {{{one.name}: auto}}` to go on without it where it does not run, or `off`."


def _of_updates(expected: Sequence[Expectation]) -> bool:
    """Whether all that is to be seen is in the update."""
    return all(one.phase is Phase.UPDATE for one in expected if isinstance(one, Expected))


def _in_words(seen: Observation) -> str:
    """Why it is not engaged, in a sentence's end."""
    said = list(seen.against)
    if seen.missing:
        shown = ", ".join(seen.missing[:3]) + (f" and {len(seen.missing) - 3} more" if len(seen.missing) > 3 else "")
        said.append(f"{seen.count} places; not at {shown}")
    return "; ".join(said) or seen.evidence or "nothing of it was seen"
