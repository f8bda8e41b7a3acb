"""What there was to choose from: memory and speed of each policy at a few sizes of micro-batches, as lines of text."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dynotune.estimate.fastest import Question, Setting
from dynotune.measure.memory import GIB
from dynotune.plan.ladder import round_down

SHOWN = (1024, 2048, 4096, 8192, 16_384, 32_768)
"""Tokens that are shown, besides the least, the most and what was tried or chosen."""


@dataclass(frozen=True, slots=True)
class Point:
    """One setting."""

    policy: str
    tokens: int
    bytes: int | None
    """Beside the weights; None where memory ran out."""

    measured: bool
    tokens_per_second: float | None
    """Forward and backward of the largest micro-batch, measured, or from what was measured of another; None: nothing was."""

    relative_time: float
    """Of a token, 1 for the fastest that is shown, as it is estimated."""

    fits: bool | None
    """None where it is not known what the device has."""

    chosen: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


ON_CPU = "on the CPU no setting is chosen by memory"
DOCUMENT_BY_DOCUMENT = "documents are computed one by one, so that there is no size of micro-batches to choose"
ALL_ASKED = "both `micro_batch_tokens` and what is done with activations were asked for"


def nothing_to_show(why: str) -> str:
    """In the place of a curve that was asked for."""
    return f"memory: there is no curve to show: {why}"


def curve(question: Question, chosen: Setting | None, known: bool = True) -> list[Point]:
    """By policy, then by tokens. known: whether it is known what the device has."""
    sizes = {question.least, question.most, *(round_down(size) for size in SHOWN)}
    sizes = {size for size in sizes if question.least <= size <= question.most}
    settings = [Setting(policy, size) for policy in question.costs for size in sizes]
    settings += [*question.tried, *([chosen] if chosen else [])]
    unit = min(map(question.cost, settings))
    timed = [(s, found) for s, found in question.tried.items() if found is not None and found.seconds > 0]
    points = []
    for one in sorted({*settings}, key=lambda s: ([*question.costs].index(s.policy), s.tokens)):
        found, cost = question.tried.get(one), question.cost(one)
        rate = None
        if found is not None and found.seconds > 0:
            rate = one.tokens / found.seconds
        elif timed:
            like, its = timed[-1]
            rate = like.tokens / its.seconds * question.cost(like) / cost
        fits = question.fits(one) if known else None
        points.append(
            Point(
                one.policy,
                one.tokens,
                question.needed(one),
                one in question.tried,
                rate,
                cost / unit,
                fits,
                one == chosen,
            )
        )
    return points


def lines(points: Sequence[Point], free: int | None) -> list[str]:
    """A table of plain text."""
    there = "" if free is None else f", of {free / GIB:.1f} GiB that are there"
    said = [f"memory beside the weights{there}, by policy of activations:"]
    said.append(f"{'policy':<10}{'tokens':>9}{'GiB':>9}  {'by':<10}{'tokens/s':>10}{'time':>7}  fits")
    for one in points:
        size = "out" if one.bytes is None else f"{one.bytes / GIB:.1f}"
        rate = "-" if one.tokens_per_second is None else f"{one.tokens_per_second:,.0f}"
        fits = "?" if one.fits is None else "yes" if one.fits else "no"
        how = "measured" if one.measured else "estimated"
        said.append(
            f"{one.policy:<10}{one.tokens:>9,}{size:>9}  {how:<10}{rate:>10}{one.relative_time:>7.2f}  {fits}"
            f"{'  <- chosen' if one.chosen else ''}"
        )
    return said
