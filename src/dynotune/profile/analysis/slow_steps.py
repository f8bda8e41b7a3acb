"""Steps in which something besides training happened, and what that costs in the mean of all steps."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from dynotune.profile.analysis.breakdown import Breakdown
from dynotune.profile.analysis.findings import Finding
from dynotune.profile.analysis.in_words import ms, percent
from dynotune.profile.analysis.ranks import WAIT_SHARE
from dynotune.profile.analysis.remedies import remedy
from dynotune.profile.analysis.usual import beside, usual, without_tokens
from dynotune.profile.records.record import Record

SLOW = "slow-"
"""Before what happened, in the names of findings."""

OFTEN = 3
"""Steps in which something happened: from fewer nothing can be said of how often it does, nor that it is what cost them."""

USUAL = 0.9
"""Share of the usual steps that a slow one is slower than."""

SURE = 2.5
"""Standard deviations."""


def slow_steps(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    """Steps in which something besides training happened, by what it cost in the mean of all steps."""
    timed, happened, is_usual = record.timed, beside(record.timed), usual(record.timed)
    level = [i for i, each in enumerate(is_usual) if each]
    if not level:
        return
    over = over_usual(record, is_usual)
    total = sum(one.seconds for one in timed)
    high = sorted(over[i] for i in level)[int(USUAL * (len(level) - 1))]
    for what, lost in sorted(_costs(happened, over).items()):
        with_it = [i for i, here in enumerate(happened) if what in here]
        slow = sum(over[i] > high for i in with_it)
        if len(with_it) < OFTEN or 2 * slow <= len(with_it) or lost / total < WAIT_SHARE:
            continue
        if lost < SURE * _by_chance([over[i] for i in level], len(with_it)):
            continue
        gaps = {timed[b].number - timed[a].number for a, b in pairwise(with_it)}
        every = f", every {gaps.pop()} steps" if len(gaps) == 1 else ""
        mean = lost / len(timed)
        sentence = (
            f"{len(with_it)} steps with {what}{every} take {percent(lost / total)} of the time ({ms(mean)} a step)"
        )
        yield Finding(f"{SLOW}{what}", sentence, mean, remedy(record, f"{SLOW}{what}", mean, total / len(timed)))


def _by_chance(level: Sequence[float], steps: int) -> float:
    """Standard deviation of a sum over so many steps of what they take beyond the level, whose median is off as well."""
    spread = 1.48 * median(abs(each) for each in level)  # of normal noise, by the median distance
    return spread * math.sqrt(steps + math.pi / 2 * steps**2 / len(level))


def over_usual(record: Record, is_usual: Sequence[bool]) -> list[float]:
    """Of each step, what it takes beyond the median of the usual ones, as far as that does not follow from its tokens. 0
    each where no step is usual."""
    seconds = without_tokens(record.timed)
    level = [each for each, is_one in zip(seconds, is_usual, strict=True) if is_one]
    return [each - median(level) for each in seconds] if level else [0.0] * len(seconds)


def _costs(happened: Sequence[frozenset[str]], over: Sequence[float]) -> dict[str, float]:
    """Seconds in all of what happened. Where two things happen in a step, one that happens alone elsewhere has what it takes
    there, and others have the rest."""
    names = {what for here in happened for what in here}
    alone = {what: [over[i] for i, here in enumerate(happened) if here == {what}] for what in names}
    level = {what: max(0.0, median(each)) for what, each in alone.items() if each}
    costs = dict.fromkeys(names, 0.0)
    for here, more in zip(happened, over, strict=True):
        for what in here:
            others = sum(level.get(other, 0.0) for other in here - {what})
            mine = max(more - others, 0.0) if len(here) > 1 else more
            costs[what] += min(mine, level[what]) if len(here) > 1 and what in level else mine
    return {what: max(0.0, cost) for what, cost in costs.items()}
