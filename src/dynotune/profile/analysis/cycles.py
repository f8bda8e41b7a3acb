"""Slow-downs that come back every so many steps, where nothing explains them that has a finding of its own."""

from collections.abc import Iterator, Sequence

from dynotune.measure.periods import LEAST_CYCLES, LEAST_STEPS, find_periods, what_has_it, without_work
from dynotune.profile.analysis.breakdown import Breakdown
from dynotune.profile.analysis.findings import Finding
from dynotune.profile.records.record import Record, TimedStep


def periodic(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    """Each that is found, by its own figures: one that logging has does not hide another."""
    seconds = [one.seconds for one in record.timed]
    happened = {what: {i for i, one in enumerate(record.timed) if what in one.happened} for what in _happenings(record)}
    compiled = {i for i, one in enumerate(record.timed) if one.compilations}
    waits = [one.data_wait or 0.0 for one in record.timed]
    for period in find_periods(without_tokens(record.timed)):
        if what_has_it(period, {**happened, "compilation": compiled}, {}):
            continue
        cause = what_has_it(period, {}, {"the wait for data": waits})
        with_it = f", in {cause}" if cause else ", and nothing that was observed has this period"
        sentence = (
            f"{period.said} one takes {period.times:.1f} times as long: {1e3 * period.extra:,.3g} ms more,"
            f" {100 * period.share:.1f} % of the time{with_it}"
        )
        yield Finding("periodic-slow-down", sentence, period.share * sum(seconds) / len(seconds))


def longest_period(record: Record) -> int:
    """Steps of the longest cycle that so few steps can show; 0 for none."""
    return len(record.timed) // LEAST_CYCLES if len(record.timed) >= LEAST_STEPS else 0


def without_tokens(timed: Sequence[TimedStep]) -> list[float]:
    """Seconds as if every step held as much, where its tokens are known: a long document is no slow-down."""
    seconds = [one.seconds for one in timed]
    tokens = [one.processed_tokens or one.real_tokens for one in timed]
    known = [n for n in tokens if n is not None]
    return without_work(seconds, known).tolist() if len(known) == len(seconds) else seconds


def _happenings(record: Record) -> set[str]:
    return {what for one in record.timed for what in one.happened}
