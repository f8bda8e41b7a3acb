"""One word for a comparison. Bounds are fixed before anything is measured, and what cannot be compared has no speed.

NOT COMPARABLE  the arms do not make the same updates, count differently, or what was to be compared did not run
SUSPECT         faster than the device multiplies matrices, or than a ceiling that is given
FASTER, SLOWER  the whole interval is beyond half a per cent; on a noisy host beyond what noise leaves in the mean, which has
                to be known
SAME            the whole interval is within one per cent
UNRESOLVED      anything else, with about how many more pairs would tell
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dynotune.bench.judging.more_pairs import more_pairs
from dynotune.bench.statistics import MOST_PAIRS, Estimate
from dynotune.results.result import Engaged, Memory, MemoryVerdict, Parity, Verdict

CLEAR = math.log(1.005)
"""What the interval has to clear: nobody changes a setting for less."""

ALIKE = math.log(1.01)

MEMORY_ALIKE = 0.01
"""Share by which two peaks may differ: what the allocator rounds."""

ROOM = math.log(1.05)
"""By which a ratio may be above its ceiling: one step was traced, and others have other lengths and clocks."""

VOID_STATES = frozenset({"not engaged", "left out", "taken out"})
"""Of the engagement table: with these a change that was asked for was not measured. `unknown` is no evidence against it, and
of `partial` the table lists the places."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its reason."""

    verdict: Verdict
    why: str = ""
    """As the end of a sentence; empty for FASTER, SLOWER and SAME."""

    needs_more_pairs: int | None = None
    """Of UNRESOLVED: None too where more pairs would not help."""


def judge(
    estimate: Estimate | None,
    *,
    not_comparable: str = "",
    unsettled: str = "",
    no_floor: str = "",
    ceiling: float | None = None,
    mfu: float | None = None,
    attainable_mfu: float | None = None,
) -> Judgement:
    """estimate: None where fewer than two pairs count. not_comparable: from `why_not_comparable`.

    unsettled: why blocks were void each time, as the end of a sentence. no_floor: why no arm was held against itself, in the
    same way: then nobody knows what noise leaves. ceiling: the largest ratio possible, by what a
    change touches. mfu, attainable_mfu: of the arm, and of the best product of matrices that was measured on this device, of
    the same peak.
    """
    if not_comparable:
        return Judgement(Verdict.NOT_COMPARABLE, not_comparable)
    if suspicion := _too_good(estimate, ceiling, mfu, attainable_mfu):
        return Judgement(Verdict.SUSPECT, suspicion)
    if unsettled:
        return Judgement(Verdict.UNRESOLVED, unsettled)
    if estimate is None:
        return Judgement(Verdict.UNRESOLVED, "fewer than two pairs count")
    clear = max(CLEAR, estimate.margin)
    if no_floor and (estimate.low > clear or estimate.high < -clear):
        return Judgement(Verdict.UNRESOLVED, no_floor)
    if estimate.low > clear:
        return Judgement(Verdict.FASTER)
    if estimate.high < -clear:
        return Judgement(Verdict.SLOWER)
    if estimate.low > -ALIKE and estimate.high < ALIKE:
        return Judgement(Verdict.SAME)
    more = more_pairs(estimate, CLEAR, ALIKE)
    if more is None:
        return Judgement(
            Verdict.UNRESOLVED, f"needs more than {MOST_PAIRS:,} pairs: they are {estimate.spread:.1%} apart"
        )
    return Judgement(Verdict.UNRESOLVED, f"needs about {more} more pairs", more)


def largest_ratio(share: float, factor: float = math.inf) -> float:
    """What a change can gain at most that makes `share` of the step `factor` times as fast (Amdahl, 1967)."""
    assert 0 <= share <= 1, share
    assert factor > 0, factor
    left = 1 - share + share / factor
    return 1 / left if left > 0 else math.inf


def why_not_comparable(
    parity: Parity | None,
    engaged: Iterable[Engaged],
    definitions: tuple[int, int] | None = None,
    failed: str | None = None,
) -> str:
    """Why the speeds of two arms say nothing about each other, as the end of a sentence; empty where they do.

    parity: of the two arms. A gate that was called for and did not run fails, for `exact` and `numeric` changes.
    engaged: of the changes in question only. definitions: versions of the definitions that the arms' figures were made by.
    failed: why an arm has no figures.
    """
    if failed:
        return failed
    if definitions and definitions[0] != definitions[1]:
        return f"the figures follow definitions {definitions[0]} and {definitions[1]}"
    for one in engaged:
        if one.state in VOID_STATES:
            count = f" ({one.seen or 0} of {one.expected})" if one.expected else ""
            return f"{one.name} was {one.state}{count}" + (f": {one.evidence}" if one.evidence else "")
    if parity is None:
        return ""
    if parity.state == "differs":
        failing = next((check.quantity for check in parity.checks if not check.ok), "a check")
        return parity.first_difference or f"of the gate, {failing} failed"
    if parity.state == "not checked" and parity.kind in ("exact", "numeric"):
        return "that both make the same updates was not checked" + (
            f": {parity.why_not_checked.rstrip('.')}" if parity.why_not_checked else ""
        )
    return ""


def compare_memory(arm: Memory | None, other: Memory | None) -> tuple[MemoryVerdict, float] | None:
    """Of the peaks that were allocated, with their ratio; None where one is not known."""
    if arm is None or other is None or not (arm.allocated and other.allocated):
        return None
    ratio = arm.allocated / other.allocated
    if ratio > 1 + MEMORY_ALIKE:
        return MemoryVerdict.MORE, ratio
    return (MemoryVerdict.LESS if ratio < 1 / (1 + MEMORY_ALIKE) else MemoryVerdict.SAME), ratio


def _too_good(estimate: Estimate | None, ceiling: float | None, mfu: float | None, attainable_mfu: float | None) -> str:
    """Why the figure cannot be true; empty where it can. An interval that reaches down to the ceiling is still possible."""
    if mfu is not None and attainable_mfu is not None and mfu > attainable_mfu:
        return f"its MFU of {mfu:.1%} is above {attainable_mfu:.1%}, the best product of matrices measured here"
    if estimate is not None and ceiling is not None and estimate.low > math.log(ceiling) + ROOM + estimate.margin:
        ratio = math.exp(estimate.mean)
        return (
            f"{ratio:.2f}x is above {ceiling:.2f}x, the most that its share of the step allows: check the token counts"
        )
    return ""
