"""Promise: labels of an axis of ratios can be read, however wide its intervals are."""

import itertools
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.show.pictures import LETTER, MOST_TICKS, Run, Span, blocks, intervals

TEXT = re.compile(r'<text class="small" x="([-\d.]+)" y="([-\d.]+)" text-anchor="(\w+)">([^<]+)</text>')


def across(svg: str) -> list[tuple[float, str]]:
    """Places and labels of an axis from left to right."""
    return [(float(x), label) for x, _, anchor, label in TEXT.findall(svg) if anchor == "middle"]


def upwards(svg: str) -> list[tuple[float, str]]:
    return [(float(y), label) for _, y, anchor, label in TEXT.findall(svg) if anchor == "end"]


def drawn(low: float, high: float) -> list[tuple[float, str]]:
    return across(intervals([Span("b", (low, math.sqrt(low * high), high), "doubt")], "ratios"))


def overlapping(ticks: list[tuple[float, str]]) -> list[tuple[str, str]]:
    """A letter of the page's small text is 6 px wide."""
    return [
        (one, other)
        for (a, one), (b, other) in itertools.pairwise(sorted(ticks))
        if b - a < LETTER * (len(one) + len(other)) / 2
    ]


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.99, 1.02, "0"),
        (0.9, 1.9, "1x 1.5x"),
        (0.8, 4.5, "1x 1.5x 2x 3x 4x"),
        (0.9, 25.6, "1x 2x 4x 8x 16x"),
        (0.03, 66.0, "0.0625x 0.25x 1x 4x 16x 64x"),
        (0.009, 5000.0, "0.01x 0.1x 1x 10x 100x 1,000x"),
        (1e-8, 1e8, "1e-06x 0.001x 1x 1,000x 1e+06x"),
    ],
)
def test_ticks_are_few_and_easily_read(low: float, high: float, labels: str) -> None:
    ticks = drawn(low, high)
    assert set(labels.split()) <= {label for _, label in ticks}
    assert len(ticks) <= MOST_TICKS + 1
    assert not overlapping(ticks)


@given(st.floats(1e-12, 1.0), st.floats(1.0, 1e12))
def test_no_label_runs_into_the_next(low: float, high: float) -> None:
    ticks = drawn(low, high)
    assert 1 <= len(ticks) <= MOST_TICKS + 1
    assert not overlapping(ticks)


def test_sixteen_doublings_would_run_together() -> None:
    """Negative control: as ticks on all doublings of such an axis were, 24 px apart."""
    assert overlapping([(210 + 24 * i, f"{2.0**power:.3g}x") for i, power in enumerate(range(-8, 8))])


@given(st.floats(0.002, 1.0), st.floats(1.0, 500.0))
def test_blocks_that_stood_still_leave_an_axis_that_can_be_read(slow: float, fast: float) -> None:
    ticks = upwards(blocks([Run(0, slow), Run(1, 1.0), Run(0, fast)], ["a", "b"], "blocks"))
    places = sorted(y for y, _ in ticks)
    assert 1 <= len(places) <= 2 * MOST_TICKS
    assert all(b - a >= 12 for a, b in itertools.pairwise(places))
