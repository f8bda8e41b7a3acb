"""Promise: a traced step stands for one without the profiler, whatever its tokens are."""

import pytest

from dynotune.measure.kernel_classes import Work
from dynotune.profile.analysis.breakdown import breakdown_of
from tests.profile.made import Step, model, record, timed


def test_a_wait_for_data_does_not_shrink_with_the_traced_tokens() -> None:
    """On a CPU a step is its work and its waits, one after the other. The traced step has half the tokens."""
    step = Step(1000).host("aten::mm", 0, 900)
    steps = timed(0.170, data_wait=0.150, real_tokens=1000, processed_tokens=1000)
    one = breakdown_of(
        record(step, timed=steps, traced=(step.traced(real_tokens=500, processed_tokens=500),), model=model("cpu"))
    )
    assert one is not None
    assert one.row(Work.DATA).seconds == pytest.approx(0.150)
    assert one.seconds == pytest.approx(0.150 + 0.020 / 2), "work is scaled"


def test_a_device_works_while_its_host_waits() -> None:
    """The control: there a wait is no part of a step that could be taken out of it."""
    tokens = {"real_tokens": 950, "processed_tokens": 1000}
    step = Step(1000).kernel("nvjet_tst", 0, 1000, "aten::mm")
    one = breakdown_of(record(step, timed=timed(1e-3, data_wait=0.9e-3, real_tokens=475, processed_tokens=500),
                              traced=(step.traced(**tokens),)))  # fmt: skip
    assert one is not None
    assert one.seconds == pytest.approx(2e-3)


def test_idle_time_of_the_traced_step_is_its_own_and_not_of_the_timed_ones() -> None:
    """The device works for 600 of 1000 microseconds; a step without the profiler takes 700, of which 100 are idle."""
    step = Step(1000).kernel("nvjet_tst", 0, 400, "aten::mm").kernel("nvjet_tst", 700, 900, "aten::mm")
    one = breakdown_of(record(step, timed=timed(0.7e-3, data_wait=0.0)))
    assert one is not None
    assert one.idle_within_trace == pytest.approx(0.4e-3)
    assert one.row(Work.HOST).seconds == pytest.approx(0.1e-3)


def test_without_a_device_there_is_no_idle_time_of_it() -> None:
    one = breakdown_of(record(Step(1000).host("aten::mm", 0, 900), model=model("cpu")))
    assert one is not None
    assert one.idle_within_trace is None


def test_where_kernels_fill_more_than_the_timed_step_nothing_is_idle_and_they_share_it() -> None:
    """Two clocks: what the rows call idle is never below nothing."""
    step = Step(1000).kernel("nvjet_tst", 0, 900, "aten::mm")
    one = breakdown_of(record(step, timed=timed(0.8e-3, data_wait=0.0)))
    assert one is not None
    assert one.row(Work.HOST).seconds == 0
    assert sum(row.seconds for row in one.rows) == pytest.approx(0.8e-3)
    assert one.idle_within_trace == pytest.approx(0.1e-3)
