"""Gate P3: over some tens of steps two arms' losses are the same within a margin.

One step cannot show what an optimizer does later. Losses of neighbouring steps are alike, so a test for a difference would
find one in rounding errors: what is tested is equivalence, of means of blocks.
"""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import MethodType

from rich.console import Console

from dynotune.bench.parity.equivalence import block_means, equivalent, margin_of
from dynotune.bench.parity.exact import NOT_FINITE
from dynotune.bench.parity.question import Answer, Course
from dynotune.bench.parity.training import quiet, trained
from dynotune.config.whole import WholeConfig
from dynotune.plan.plan import Plan, Step
from dynotune.results.result import Check

STEPS = 60

TAIL = 0.9
"""Quantile of the gradient's norm that is compared."""

TAIL_BOUND = 0.25
"""Relative. Norms of single steps scatter; a run that is about to diverge has a tail several times as large."""


def course(config: WholeConfig, asked: Course, folder: Path, console: Console) -> Answer:
    """Train, without dropout: arms that lay documents out otherwise draw other masks."""
    changes: dict[str, object] = {"max_steps": asked.steps, "neftune_noise_alpha": None}
    if config.use_peft:
        changes["lora_dropout"] = 0.0
    settings = quiet(config, folder / "run", **changes)
    with trained(
        settings, console, lambda material: (material, settings), reordered if asked.reordered else copy, dropout=False
    ) as (_, rows):
        steps = [row for row in rows if "loss" in row]
    return Answer({"losses": [row["loss"] for row in steps], "norms": [row["grad_norm"] for row in steps]})


def reordered(plan: Plan) -> Plan:
    """The micro-batches of each step the other way round."""
    other = copy(plan)

    def step(self: Plan, number: int) -> Step:
        of = Plan.step(self, number)
        return replace(of, micro_batches=of.micro_batches[::-1])

    other.step = MethodType(step, other)  # type: ignore[method-assign]
    return other


def same_course(first: Answer, other: Answer, rerun: Answer) -> list[Check]:
    """rerun: the first arm, its sums in another order."""
    a, b, again = (one.facts["losses"] for one in (first, other, rerun))
    lost = [sum(not finite(value) for value in losses) for losses in (a, b)]
    checks = [one("steps that are not finite", abs(lost[1] - lost[0]), 0.0, f"{lost[0]} and {lost[1]}")]
    if len(a) != len(b) or any(lost):
        return [*checks, one("steps", abs(len(a) - len(b)), 0.0)]
    gaps = [y - x for x, y in zip(a, b, strict=True)]
    margin = margin_of(a, [y - x for x, y in zip(a, again, strict=True)])
    found = equivalent(block_means(gaps), margin)
    edge = max(abs(found.low), abs(found.high))
    detail = f"{found.mean:+.1e} [{found.low:+.1e}, {found.high:+.1e}] over {len(a)} steps, in nats"
    checks.append(one("mean gap of the loss", edge, margin, detail))
    tails = [tail(answer.facts["norms"]) for answer in (first, other)]
    apart = abs(tails[1] - tails[0]) / tails[0] if tails[0] else tails[1]
    return [*checks, one("tail of the gradient's norm", apart, TAIL_BOUND, f"{tails[0]:.3g} and {tails[1]:.3g}")]


def one(quantity: str, observed: float, bound: float, detail: str = "") -> Check:
    ok = finite(observed) and observed <= bound
    shown = observed if finite(observed) else NOT_FINITE
    return Check(gate="P3", quantity=quantity, observed=shown, bound=bound, ok=ok, detail=detail)


def finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def tail(norms: Sequence[float]) -> float:
    ordered = sorted(norms)
    return ordered[min(len(ordered) - 1, int(TAIL * len(ordered)))]
