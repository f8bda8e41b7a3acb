"""A program that torch.compile makes again and again, or has given up: seen while it warmed up or behind that.

The warm-up waits until nothing is compiled any more, and so it does with a function that dynamo has given up: that one runs
without being compiled from then on, as steadily as if it had never been.
"""

from collections.abc import Iterator
from statistics import fmean, median

from dynotune.measure.kernel_classes import Work
from dynotune.profile.analysis.breakdown import Breakdown
from dynotune.profile.analysis.findings import Finding
from dynotune.profile.analysis.in_words import ms
from dynotune.profile.analysis.remedies import remedy
from dynotune.profile.analysis.slow_steps import over_usual
from dynotune.profile.analysis.usual import quiet
from dynotune.profile.records.record import Record

AGAIN = 5
"""Steps of the warm-up with compilations, up from which shapes change too often. The first one or two make the graphs, and
two or three more make them again with sizes that may change."""


def recompiling(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    """Behind the warm-up, by what it costs there; else a function that was given up; else what warming up had to do."""
    with_it = [one for one in record.timed if one.compilations]
    if not with_it:
        yield from _while_warming_up(record, breakdown)
        return
    graphs = sum(one.compilations for one in with_it)
    over = over_usual(record, [not one.compilations for one in record.timed])
    lost = max(0.0, sum(over[i] for i, one in enumerate(record.timed) if one.compilations)) / len(record.timed)
    mean = fmean(one.seconds for one in record.timed)
    sentence = (
        f"torch.compile made {graphs} new graphs in {len(with_it)} of {len(record.timed)} steps after warming up: shapes"
        f" still change ({ms(lost)} a step on average)"
    )
    yield Finding("recompiling", sentence, lost, remedy(record, "recompiling", lost, mean))


def _while_warming_up(record: Record, breakdown: Breakdown | None) -> Iterator[Finding]:
    warm = record.warm_up
    if warm.limits_met:
        # What compiling could take away at most: values that are moved without need, and launches.
        works = (Work.ELEMENTWISE, Work.COPIES, Work.HOST)
        saves = sum(breakdown.row(work).seconds for work in works) if breakdown is not None else 0.0
        step = breakdown.seconds if breakdown is not None else 0.0
        functions = "a function" if warm.limits_met == 1 else f"{warm.limits_met} functions"
        often = f" of {warm.limit} graphs" if warm.limit else ""
        sentence = (
            f"torch.compile gave up {functions}, whose shapes keep changing, at its limit{often} (`recompile_limit`): what"
            " runs now is not compiled"
        )
        yield Finding("compile-limit", sentence, 0.0, remedy(record, "compile-limit", saves, step))
    elif len(warm.compiled) >= AGAIN:
        step = median(one.seconds for one in quiet(record.timed)) if record.timed else 0.0
        sentence = (
            f"torch.compile made new graphs in {len(warm.compiled)} of {warm.steps} steps while it warmed up: shapes change,"
            " and another one compiles again"
        )
        yield Finding("recompiling", sentence, 0.0, remedy(record, "recompiling", 0.0, step))
