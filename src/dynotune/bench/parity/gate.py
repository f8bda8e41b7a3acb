"""The parity gate: whether an arm makes the updates of its baseline, asked of both in fresh processes before any timing.

P1, in float32: the same losses, gradient and update. P2, in the arms' own precision: no further from the float32
reference than the plain path or the baseline. P3: the same trajectory of loss. P4, of behavioural arms, and of numeric ones
in the place of P2: held-out loss, and no gate. `needs.py` says which of them a difference calls for.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from dynotune.bench.asking.arms import Arm
from dynotune.bench.parity import course, held_out
from dynotune.bench.parity.asking import Ask, Processes
from dynotune.bench.parity.cut import OF_MODEL, cut
from dynotune.bench.parity.exact import exact
from dynotune.bench.parity.needs import Needs, needs_of
from dynotune.bench.parity.precision import within_precision
from dynotune.bench.parity.question import SEED, Answer, Asked, Course, HeldOut, Question
from dynotune.bench.workers.hand import ArmFailedError
from dynotune.config.whole import WholeConfig
from dynotune.model.precision import choose_precision
from dynotune.results.result import Check, Parity

STATES: dict[str, Any] = {"exact": "same", "numeric": "within precision", "behavioural": "behavioural"}


def check(
    first: Arm,
    other: Arm,
    folder: Path,
    *,
    full: bool = False,
    allowance: float = math.inf,
    spent: str = "",
    say: Callable[[str], None],
    ask: Ask | None = None,
) -> Parity:
    """What `other` changes of the updates of `first`. folder: for configurations, answers and logs of the probes.

    full: trajectories of exact arms, too, and held-out losses of behavioural ones whatever they cost. allowance: seconds
    that these may take otherwise. spent: why no process may begin any more, as the end of a sentence; what needs none is
    said all the same. ask: default processes of their own.
    """
    began = time.perf_counter()
    needs = needs_of(first.config, other.config, full=full)
    found = Parity(arm=other.name, against=first.name, kind=needs.kind, state="same")
    if needs.kind == "unchanged":
        return found
    if needs.kind == "behavioural" and not full and (why := held_out.why_nothing(first.config, other.config)):
        return found.model_copy(
            update={"state": "behavioural", "why_not_checked": f"{why}; what differs is {needs.why}"}
        )
    if spent:
        state: Any = "behavioural" if needs.kind == "behavioural" else "not checked"
        return found.model_copy(update={"state": state, "why_not_checked": spent})
    took = dict[str, float]()
    try:
        with ExitStack() as stack:
            gate = _Gate(
                first, other, needs, folder, say, ask or stack.enter_context(Processes(first, other)),
                math.inf if full else allowance, took=took,
            )  # fmt: skip
            gate.run()
    except ArmFailedError as error:
        say(f"parity of {other.name} was not checked: an arm failed ({_seconds(took)})")
        return found.model_copy(update={"state": "not checked", "why_not_checked": str(error)})
    failed = next((one for one in gate.checks if not one.ok), None)
    state = "differs" if failed else "not checked" if gate.why_not else STATES[needs.kind]
    seconds = time.perf_counter() - began
    without = needs.kind == "numeric" and not {"P2", "P4"} & {*needs.gates}
    no_loss = held_out.why_nothing(first.config, other.config) if without else ""
    gates = ", ".join(needs.gates)
    say(f"parity of {other.name} ({needs.kind}): {gates} took {seconds:.1f} s ({_seconds(took)}); seed {SEED}")
    return found.model_copy(
        update={
            "state": state,
            "checks": tuple(gate.checks),
            "first_difference": in_words(failed) if failed else "",
            "why_not_checked": "; ".join(gate.why_not) if state == "not checked" else gate.too_long or no_loss,
            "held_out": gate.held_out,
        }
    )


def _seconds(took: Mapping[str, float]) -> str:
    return ", ".join(f"{part} {seconds:.1f} s" for part, seconds in took.items())


def in_words(check: Check) -> str:
    """`gradient differs by 5.5e-1, relative (bound 1e-4)`."""
    if check.bound == 0:
        return f"{check.quantity}: {check.detail or f'{check.observed:,.0f} differ'}"
    amount = "without end" if check.detail.startswith("it is not finite") else f"by {short(check.observed)}"
    if check.gate == "P2":
        return f"{check.quantity} is {short(check.observed)} (bound {short(check.bound)}: {check.detail})"
    if check.gate == "P3":
        return f"{check.quantity} is up to {short(check.observed)} (bound {short(check.bound)})"
    return f"{check.quantity} differs {amount}, relative (bound {short(check.bound)})"


def short(value: float) -> str:
    """`5.5e-1`, `1e-4`."""
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


@dataclass(slots=True)
class _Gate:
    """Of two arms: what they are asked, and the checks that follow."""

    first: Arm
    other: Arm
    needs: Needs
    folder: Path
    say: Callable[[str], None]
    ask: Ask
    allowance: float = math.inf
    """Seconds for held-out losses."""

    too_long: str = ""
    """Why these are left out, as the end of a sentence."""

    checks: list[Check] = field(default_factory=list)
    why_not: list[str] = field(default_factory=list)
    held_out: dict[str, tuple[float, ...]] = field(default_factory=dict)
    took: dict[str, float] = field(default_factory=dict)
    """Seconds of each part, of one that failed too."""

    def run(self) -> None:
        """Raises `ArmFailedError`."""
        gates = self.needs.gates
        if "P1" in gates or "P2" in gates:
            with self._timed("one step"):
                self._one_step()
        if "P3" in gates and all(one.ok for one in self.checks):  # what one step shows needs no sixty
            with self._timed(f"{course.STEPS} steps"):
                self._courses()
        if "P4" in gates and all(one.ok for one in self.checks):
            with self._timed("held-out losses"):
                self._held_out()

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.took[part] = time.perf_counter() - began

    def _one_step(self) -> None:
        of_both = [below_float32(one.config) for one in (self.first, self.other)]
        p1, p2 = "P1" in self.needs.gates, "P2" in self.needs.gates and any(of_both)
        # The arm's own precision first: what float32 switches off in a process stays off.
        asked = [Question("own", "own")] if p2 else []
        asked += [Question("float32")] if p1 else []
        asked += [Question("reference", plain=True)] if p2 else []
        model = cut(self.first.config, self.folder / "model", self.say)
        may_fail = "float32" if p2 else ""  # kernels that are made for bfloat16 are compared by P2 alone
        mine = self._ask(self.first, asked, model, may_fail)
        if mine is None:
            return
        rows = next(iter(mine.values())).rows
        split: Any = "whole" if self.needs.other_split else "least"
        asked = [replace(one, rows=rows, split=split) for one in asked if one.name != "reference"]
        if p2:
            asked.insert(1, Question("plain", "own", plain=True, rows=rows))
        theirs = self._ask(self.other, asked, model, may_fail)
        if theirs is None:
            return
        in_float32 = [answers["float32"] for answers in (mine, theirs) if "float32" in answers]
        if p1 and not any(one.failed for one in in_float32):
            self.checks += exact(*in_float32)
            left_out = {} if p2 else in_float32[1].facts["left_out"]
            self.why_not += [f"{name}: {left_out[name]}" for name in self.needs.speedups if name in left_out]
        if p2:
            own = theirs["own"]
            baselines = {"the plain path": theirs["plain"]}
            if mine["own"].precision == own.precision and self.needs.kind == "exact":
                baselines[self.first.name] = mine["own"]
            note = unseen(self.needs, (mine["own"], own), in_float32)
            self.checks += within_precision(mine["reference"], baselines, own, note)
        self._say_what_could_not_show([one for one in (*mine.values(), *theirs.values()) if not one.failed])

    def _say_what_could_not_show(self, answers: Sequence[Answer]) -> None:
        """None of it blocks: what cannot be here is no difference between the arms, and their runs say if it is."""
        seen = {name for one in answers for name in one.facts["installed"]}
        if nowhere := [name for name in self.needs.speedups if name not in seen]:
            self.say(f"note: {' and '.join(nowhere)} stood in no probe, so of that nothing was compared")
        if all(len(one.facts["micro_batches"]) == 1 for one in answers):
            self.say(
                "note: all examples of the probe fill one micro-batch, so that mistakes between several could not show"
            )

    def _ask(
        self, arm: Arm, asked: Sequence[Asked], model: WholeConfig | None = None, may_fail: str = ""
    ) -> dict[str, Answer] | None:
        """By the names of the questions; None where one of them has no answer and must have, which is then said.

        model: names the model that the arm is asked of, where that is not its own.
        """
        which = "first" if arm is self.first else "other"
        folder = self.folder / f"{which}-{asked[0].kind.replace(' ', '-')}"
        folder.mkdir(parents=True, exist_ok=True)
        if model is not None and model.model_name_or_path != arm.config.model_name_or_path:
            arm = replace(arm, config=arm.config.replace(**{key: getattr(model, key) for key in OF_MODEL}))
        found = dict(zip([one.name for one in asked], self.ask(arm, asked, folder), strict=True))
        failed = [f"{arm.name}: {one.failed}" for name, one in found.items() if one.failed and name != may_fail]
        self.why_not += failed
        return None if failed else found

    def _courses(self) -> None:
        asked = [Course("course", course.STEPS)]
        mine = self._ask(self.first, [*asked, Course("rerun", course.STEPS, reordered=True)])
        theirs = self._ask(self.other, asked) if mine else None
        if mine and theirs:
            self.checks += course.same_course(mine["course"], theirs["course"], mine["rerun"])

    def _held_out(self) -> None:
        seeds = [self.first.config.seed + i for i in range(held_out.SEEDS)]
        asked = [HeldOut(f"seed {seed}", seed, steps=held_out.STEPS) for seed in seeds]
        began = time.perf_counter()
        mine = self._ask(self.first, asked[:1])
        all_of_it = 2 * len(seeds) * (time.perf_counter() - began)
        if mine and all_of_it > self.allowance:
            self.too_long = (
                f"{len(seeds)} seeds of both arms would take about {all_of_it:,.0f} s, of {self.allowance:,.0f} allowed"
            )
            self.say(f"{self.other.name}: held-out losses are left out: {self.too_long}")
            return
        rest = self._ask(self.first, asked[1:]) if mine else None
        if not mine or not rest:
            return
        mine = {**mine, **rest}
        asked = [HeldOut(f"seed {seed}", seed, share=mine[f"seed {seed}"].facts["share"]) for seed in seeds]
        theirs = self._ask(self.other, asked)
        if not theirs:
            return
        for arm, answers in ((self.first, mine), (self.other, theirs)):
            self.held_out[arm.name] = tuple(answers[f"seed {seed}"].facts["held_out"] for seed in seeds)
        self.checks.append(
            held_out.compared(self.held_out[self.first.name], self.held_out[self.other.name], self.needs.kind)
        )


def below_float32(config: WholeConfig) -> bool:
    """Whether a run of `config` on this machine keeps or computes anything in less than float32."""
    on_gpu = torch.cuda.is_available() and not config.use_cpu
    # A GPU without bfloat16 is asked for nothing here; that would make a context on it. There P2 merely says float32.
    precision = choose_precision(config, config, torch.device("cuda" if on_gpu else "cpu"), has_bf16=on_gpu)
    return precision.compute_bf16 or precision.weights is not torch.float32 or bool(config.tf32)


def unseen(needs: Needs, own: Sequence[Answer], in_float32: Sequence[Answer]) -> str:
    """Of the speed-ups in question, those that stood in an arm's own precision and not in float32, for which P1 says
    nothing. As the end of a sentence."""
    if failed := [one.failed for one in in_float32 if one.failed]:
        return f"; there is no float32 path: {failed[0]}"
    there = {name for answer in in_float32 for name in answer.facts["installed"]}
    standing = {name for answer in own for name in answer.facts["installed"]}
    only = [name for name in needs.speedups if name in standing - there] if in_float32 else []
    return f"; in float32 there is no {' and no '.join(only)}" if only else ""
