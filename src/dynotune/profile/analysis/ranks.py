"""Ranks that wait for each other: how long, for which one, and communication that nothing hides.

Ranks meet in every step, so their steps take equally long, whoever is slow. What tells them apart is the part of a step
that is neither communication nor waiting for others: each rank's own.
"""

from collections.abc import Iterator
from statistics import fmean

from dynotune.measure.kernel_classes import Work
from dynotune.profile.analysis.breakdown import Breakdown, breakdown_of
from dynotune.profile.analysis.findings import Finding
from dynotune.profile.analysis.in_words import ms, percent
from dynotune.profile.analysis.remedies import remedy
from dynotune.profile.records.record import Record

WAIT_SHARE = 0.03
"""Of a step: waits for data or ranks above it are said."""

EXPOSED_SHARE = 0.05


def own_seconds(record: Record) -> float | None:
    """Of a step, what the rank whose record it is spends on its own. None without a trace."""
    breakdown = breakdown_of(record)
    return None if breakdown is None else breakdown.seconds * (1 - breakdown.share(Work.COMMUNICATION, Work.RANKS))


def uneven(record: Record) -> tuple[str, float] | None:
    """Which rank is slowest, in words, and the seconds of a step that could be saved at most: were it as fast as the next
    one, or the work of all the same."""
    own = record.own_seconds
    if len(own) < 2:
        return None
    slow = max(own, key=lambda rank: own[rank])
    others = [seconds for rank, seconds in own.items() if rank != slow]
    said = f"rank {slow} is the slowest: its own work takes {ms(own[slow])}, that of others {ms(fmean(others))}"
    return said, own[slow] - min(max(others), fmean(own.values()))


def waiting_for_ranks(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    if breakdown is None:
        return
    step, found = breakdown.seconds, uneven(record)
    slowest, beyond = found if found is not None and found[1] / breakdown.seconds >= WAIT_SHARE else ("", 0.0)
    waits, exposed = breakdown.row(Work.RANKS), breakdown.row(Work.COMMUNICATION)
    if waits.share >= WAIT_SHARE and waits.seconds >= beyond:
        sentence = f"waiting for other ranks takes {ms(waits.seconds)} of each step ({percent(waits.share)})"
        sentence += f"; {slowest}" if slowest else ""
        most = min(waits.seconds, found[1]) if found is not None else waits.seconds
        yield Finding("ranks-wait", sentence, waits.seconds, remedy(record, "ranks-wait", most, step))
    elif beyond:  # for the rank that is looked at, which itself hardly waits; or the wait is within communication
        sentence = f"ranks wait {ms(beyond)} of each step ({percent(beyond / step)}) for one of them; {slowest}"
        yield Finding("ranks-wait", sentence, beyond, remedy(record, "ranks-wait", beyond, step))
    if exposed.share >= EXPOSED_SHARE:
        name = "exposed-communication"
        sentence = (
            f"communication that nothing hides takes {ms(exposed.seconds)} of each step ({percent(exposed.share)})"
        )
        yield Finding(name, sentence, exposed.seconds, remedy(record, name, exposed.seconds, step))
