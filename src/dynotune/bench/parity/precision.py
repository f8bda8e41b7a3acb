"""Gate P2: in the precision that it computes in, an arm is not further from the float32 reference than right ones are."""

import math
from collections.abc import Mapping

from dynotune.bench.parity.exact import GRADIENT, NOT_FINITE, TOKEN_LOSS, distance, ratio
from dynotune.bench.parity.question import Answer
from dynotune.results.result import Check

ALLOWED = 1.5
"""Times a baseline's own error. Errors of rounding are random: over eight seeds of a tiny model, those of
two right arms were apart by a factor of 0.80 to 1.36 in 16 answers' log-probabilities, and of 0.90 to 1.20 in the
gradient."""


def within_precision(reference: Answer, baselines: Mapping[str, Answer], other: Answer, note: str = "") -> list[Check]:
    """reference: the plain path in float32. baselines, by name: the plain path in the other arm's precision, and the first
    arm where it computes in that, too; the one that is further off counts. note: on what was not seen in float32.

    What is within the bounds of P1 is right whatever the baselines' error is.
    """
    checks = []
    for quantity, error, least in (("loss", loss_error, TOKEN_LOSS), ("gradient", gradient_error, GRADIENT)):
        mine = error(other, reference)
        errors = {name: error(one, reference) for name, one in baselines.items()}
        errors = {name: of for name, of in errors.items() if math.isfinite(of)}
        if not errors or not math.isfinite(mine):
            bound, ok, detail = least, False, "it is not finite"
        else:
            name, most = max(errors.items(), key=lambda item: item[1])
            bound = max(ALLOWED * most, least)
            ok, detail = mine <= bound, f"{name} has {most:.1e} in {other.precision}{note}"
        observed = mine if math.isfinite(mine) else NOT_FINITE
        what = f"error of the {quantity}"
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
