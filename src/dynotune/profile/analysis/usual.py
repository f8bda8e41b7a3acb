"""Which timed steps are usual ones: what else happened in the others, and seconds as if every step held as much."""

from collections import Counter
from collections.abc import Iterable, Sequence

from dynotune.measure.periods import without_work
from dynotune.profile.records.record import TimedStep


def beside(timed: Sequence[TimedStep]) -> list[frozenset[str]]:
    """Of each step, what happened in it beside training and not in most steps: a script that logs every step has no step
    without, and its evaluations would stand beside nothing."""
    counts = Counter(what for one in timed for what in set(one.happened))
    return [frozenset(what for what in one.happened if 2 * counts[what] <= len(timed)) for one in timed]


def usual(timed: Sequence[TimedStep]) -> list[bool]:
    """Of each step, whether nothing happened in it that does not happen in most, and nothing was compiled."""
    return [not what and not one.compilations for what, one in zip(beside(timed), timed, strict=True)]


def quiet(timed: Iterable[TimedStep]) -> list[TimedStep]:
    """The usual steps; all of them where there are no such."""
    every = list(timed)
    return [one for one, is_usual in zip(every, usual(every), strict=True) if is_usual] or every


def without_tokens(timed: Sequence[TimedStep]) -> list[float]:
    """Seconds as if every step held as much, where its tokens are known: a long document is no slow-down."""
    seconds = [one.seconds for one in timed]
    tokens = [one.processed_tokens or one.real_tokens for one in timed]
    known = [n for n in tokens if n is not None]
    return without_work(seconds, known).tolist() if len(known) == len(seconds) else seconds
