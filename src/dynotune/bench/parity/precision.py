"""Gate P2: in the precision that it computes in, an arm is not further from the float32 reference than its baseline is."""

import math

from dynotune.bench.parity.exact import GRADIENT, NOT_FINITE, TOKEN_LOSS, distance, ratio
from dynotune.bench.parity.question import Answer
from dynotune.bench.result import Check

ALLOWED = 1.5
"""Times the baseline's own error. Errors of rounding are random: those of two right arms differ by a few tenths."""


def within_precision(reference: Answer, baseline: Answer, other: Answer, name: str, note: str = "") -> list[Check]:
    """reference: the plain path in float32. baseline: the first arm where it computes in the other's precision, else the
    plain path in that precision; `name` in words. note: on what was not seen in float32.

    What is within the bounds of P1 is right whatever the baseline's error is.
    """
    checks = []
    for quantity, error, least in (("loss", loss_error, TOKEN_LOSS), ("gradient", gradient_error, GRADIENT)):
        mine, yardstick = error(other, reference), error(baseline, reference)
        finite = math.isfinite(mine) and math.isfinite(yardstick)
        bound = max(ALLOWED * yardstick, least) if math.isfinite(yardstick) else least
        what = f"error of the {quantity}"
        detail = f"{name} has {yardstick:.1e} in {other.precision}{note}" if finite else "it is not finite"
        ok = finite and mine <= bound
        observed = mine if math.isfinite(mine) else NOT_FINITE
        checks.append(Check(gate="P2", quantity=what, observed=observed, bound=bound, ok=ok, detail=detail))
    return checks


def loss_error(answer: Answer, reference: Answer) -> float:
    """Of all tokens, or of all answers' log-probabilities, relative in the L2 norm. Infinite where there are others."""
    kind = "logps" if reference.each("logps") else "loss"
    a, b = answer.each(kind), reference.each(kind)
    if a.keys() != b.keys() or any(a[row].shape != b[row].shape for row in b):
        return math.inf
    apart = sum(float((a[row].double() - b[row].double()).square().sum()) for row in b)
    size = sum(float(b[row].double().square().sum()) for row in b)
    return ratio(math.sqrt(apart), math.sqrt(size))


def gradient_error(answer: Answer, reference: Answer) -> float:
    if answer.each("gradient").keys() != reference.each("gradient").keys():
        return math.inf
    return distance("gradient", answer, reference)
