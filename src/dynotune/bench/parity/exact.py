"""Gate P1: in float32 two arms give the same losses, gradient and update, up to rounding.

Between rounding (3e-6 of the gradient) and the mildest mistake (2.5e-2) lie four orders of magnitude, so the bounds need
no tuning: they are those of the design.
"""

import math
import sys
from collections.abc import Mapping

import torch
from torch import Tensor

from dynotune.bench.parity.question import Answer
from dynotune.results.result import Check

TOKEN_LOSS = 1e-5
GRADIENT = 1e-4
DIRECTION = 1e-6
UPDATE = 1e-3
PAIR_LOSS = 1e-4
"""Relative. A pair's loss is of a difference of log-probabilities that are a hundred times as large, each within
`TOKEN_LOSS`."""

NOT_FINITE = sys.float_info.max
"""In place of a value that is not finite: JSON has none."""


def exact(first: Answer, other: Answer) -> list[Check]:
    """All quantities, in the order in which a mistake would travel. A later one is left out where an earlier one says that
    there is nothing to compare."""
    one, two = first.each("gradient"), other.each("gradient")
    lost = sorted(one.keys() ^ two.keys())
    elsewhere = first.facts["data"] != other.facts["data"]
    checks = [check("data", float(elsewhere), 0.0, "other tokens, labels or order" if elsewhere else "")]
    lacking = f"not in both: {', '.join(lost[:3])}" if lost else ""
    checks.append(check("trained parameters", float(len(lost)), 0.0, lacking))
    losses, theirs = first.each("loss"), other.each("loss")
    counts, counted = label_tokens(first), label_tokens(other)
    wrong = [row for row in counts.keys() | counted.keys() if counts.get(row) != counted.get(row)]
    detail = f"{total(counts):,} and {total(counted):,} in {len(counts)} examples" if wrong else ""
    checks.append(check("label tokens", float(len(wrong)), 0.0, detail))
    of_pairs = bool(first.each("logps"))
    bound = PAIR_LOSS if of_pairs else TOKEN_LOSS
    if not wrong:
        if of_pairs:
            apart = largest(other.each("logps"), first.each("logps"))
            checks.append(check("log-probability of each answer", apart, TOKEN_LOSS))
        checks.append(check("loss of each pair" if of_pairs else "loss of each token", largest(theirs, losses), bound))
    step = abs(other.facts["loss"] - first.facts["loss"]) / abs(first.facts["loss"])
    checks.append(check("loss of the step", step, bound))
    if lost:
        return checks
    checks.append(check("gradient", distance("gradient", other, first), GRADIENT))
    checks.append(check("direction of the gradient", 1 - cosine(two, one), DIRECTION))
    checks.append(check("one update", distance("update", other, first), UPDATE, "by SGD"))
    drawn = distance("drawn", other, first)
    checks.append(check("three updates", drawn, UPDATE, "by the arm's own optimizer, of made-up gradients"))
    return checks


def check(quantity: str, observed: float, bound: float, detail: str = "") -> Check:
    """Of P1. What is not finite is not within any bound."""
    ok = math.isfinite(observed) and observed <= bound
    if not math.isfinite(observed):
        observed, detail = NOT_FINITE, "; ".join(filter(None, ["it is not finite", detail]))
    return Check(gate="P1", quantity=quantity, observed=observed, bound=bound, ok=ok, detail=detail)


def label_tokens(answer: Answer) -> dict[str, tuple[int, ...]]:
    """Of each example, as its step had them: of a pair of both answers."""
    of_pairs = answer.each("labels")
    return {
        row: tuple(of_pairs[row].int().tolist()) if row in of_pairs else (loss.numel(),)
        for row, loss in answer.each("loss").items()
    }


def total(counts: Mapping[str, tuple[int, ...]]) -> int:
    return sum(sum(each) for each in counts.values())


def largest(values: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest relative difference. Of a token that is all but certain it is relative to the mean instead: its loss is
    a rest that rounding leaves of two large numbers."""
    a = torch.cat([values[key].double().reshape(-1) for key in sorted(expected)])
    b = torch.cat([expected[key].double().reshape(-1) for key in sorted(expected)])
    if not a.numel():
        return 0.0
    scale = b.abs().clamp(min=max(float(b.abs().mean()), sys.float_info.min))
    return float(((a - b).abs() / scale).max())


def distance(kind: str, answer: Answer, reference: Answer) -> float:
    """Relative in the L2 norm, over all parameters; where only rows of one were kept, at least what the norms of the whole
    differ by."""
    a, b = answer.each(kind), reference.each(kind)
    apart = math.sqrt(sum(float((a[name].double() - b[name].double()).square().sum()) for name in b))
    kept = norm(b)
    mine, theirs = (one.facts["squares"] for one in (answer, reference))
    norms = {name: (mine[f"{kind}/{name}"] ** 0.5, theirs[f"{kind}/{name}"] ** 0.5) for name in b}
    whole = math.sqrt(sum(other**2 for _, other in norms.values()))
    by_norm = math.sqrt(sum((one - other) ** 2 for one, other in norms.values()))
    return max(ratio(apart, kept), ratio(by_norm, whole))


def ratio(apart: float, size: float) -> float:
    """0 of nothing, whatever it is a share of."""
    return 0.0 if apart == 0 else apart / size if size > 0 else math.inf


def norm(tensors: Mapping[str, Tensor]) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in tensors.values()))


def cosine(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    sizes = norm(a) * norm(b)
    if sizes == 0:
        return 1.0 if norm(a) == norm(b) else 0.0
    return sum(float((a[name].double() * b[name].double()).sum()) for name in b) / sizes
