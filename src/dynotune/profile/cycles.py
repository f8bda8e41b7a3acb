"""Slow-downs that come back every so many steps, where nothing explains them that has a finding of its own."""

from collections.abc import Iterator

from dynotune.measure.periods import find_period, what_has_it
from dynotune.profile.breakdown import Breakdown
from dynotune.profile.findings import Finding
from dynotune.profile.record import Record


def periodic(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    """One at most: the clearest. A period shows in five of its cycles, so one of 50 steps in 250."""
    seconds = [one.seconds for one in record.timed]
    period = find_period(seconds)
    if period is None:
        return
    happened = {what: {i for i, one in enumerate(record.timed) if what in one.happened} for what in _happenings(record)}
    compiled = {i for i, one in enumerate(record.timed) if one.compilations}
    if what_has_it(period, {**happened, "compilation": compiled}, {}):
        return
    waits = [one.data_wait or 0.0 for one in record.timed]
    cause = what_has_it(period, {}, {"the wait for data": waits})
    with_it = f", in {cause}" if cause else ", and nothing that was observed has this period"
    sentence = (
        f"every {period.every} steps one takes {period.times:.1f} times as long: {1e3 * period.extra:,.3g} ms more,"
        f" {100 * period.share:.1f} % of the time{with_it}"
    )
    yield Finding("periodic-slow-down", sentence, period.share * sum(seconds) / len(seconds))


def _happenings(record: Record) -> set[str]:
    return {what for one in record.timed for what in one.happened}
