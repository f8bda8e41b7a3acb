"""Slow-downs that come back every so many steps, where nothing explains them that has a finding of its own."""

from collections.abc import Iterator

from dynotune.measure.periods import LEAST_CYCLES, LEAST_STEPS, find_periods, what_has_it
from dynotune.profile.analysis.breakdown import Breakdown
from dynotune.profile.analysis.findings import Finding
from dynotune.profile.analysis.remedies import remedy
from dynotune.profile.analysis.slow_steps import SLOW, slow_steps
from dynotune.profile.analysis.usual import without_tokens
from dynotune.profile.records.record import Record


def periodic(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    """Each that is found, by its own figures: one that logging has does not hide another."""
    seconds = [one.seconds for one in record.timed]
    happened = {what: {i for i, one in enumerate(record.timed) if what in one.happened} for what in _happenings(record)}
    said = {one.name.removeprefix(SLOW) for one in slow_steps(record, breakdown)}
    compiled = {i for i, one in enumerate(record.timed) if one.compilations}
    explained = {"compilation": compiled, **{what: at for what, at in happened.items() if what in said}}
    waits = [one.data_wait or 0.0 for one in record.timed]
    for period in find_periods(without_tokens(record.timed)):
        if what_has_it(period, explained, {}):
            continue
        what = what_has_it(period, happened, {})
        wait = "" if what else what_has_it(period, {}, {"the wait for data": waits})
        with_it = (
            f", with {what}" if what else f", in {wait}" if wait else ", and nothing that was observed has this period"
        )
        sentence = (
            f"{period.said} one takes {period.times:.1f} times as long: {1e3 * period.extra:,.3g} ms more,"
            f" {100 * period.share:.1f} % of the time{with_it}"
        )
        mean = sum(seconds) / len(seconds)
        lost = period.share * mean
        yield Finding(
            "periodic-slow-down", sentence, lost, remedy(record, f"{SLOW}{what}", lost, mean) if what else None
        )


def longest_period(record: Record) -> int:
    """Steps of the longest cycle that so few steps can show; 0 for none."""
    return len(record.timed) // LEAST_CYCLES if len(record.timed) >= LEAST_STEPS else 0


def _happenings(record: Record) -> set[str]:
    return {what for one in record.timed for what in one.happened}
