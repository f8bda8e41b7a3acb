"""Promise: idle time is a wait's doing as far as there were none without the wait: until the host has its lead again, and no
longer than it stood; not where it is slow anyway or enough was queued.

`profile/data/h200_step_with_read.json.gz` is one step of `benchmarks/gpu_profile.py --arms reads --layers 12` on an H200: of
its record what ran on the device, what launched it, the waits, and the ranges of its phases.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dynotune.measure.evidence import Source
from dynotune.measure.kernel_classes import Surroundings, Work
from dynotune.measure.timelines.rows import Segments, segments_of
from dynotune.measure.traces.facts import WAIT
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.records.record import Record
from dynotune.profile.records.record_file import read_record
from tests.measure.kineto import FEED, Raw
from tests.profile.made import GEMM, US, Step

DATA = Path(__file__).parents[2] / "profile" / "data"
WAITS = "cudaStreamSynchronize"
SMALL = "void at::native::vectorized_elementwise_kernel<4>"


def line_of(step: Step) -> Segments:
    one = step.traced()
    return segments_of(one.events, one.where, Surroundings(), True)


def cost(step: Step) -> float:
    """Microseconds of idle time behind waits."""
    return sum(line_of(step).reads.values()) / US


def ramp(waits: tuple[int, int] | None = (400, 1900), small: int = 20) -> Step:
    """Of 2,000 us. The step begins on an idle device: Python first, then small kernels, each launched 20 us behind the last
    and done in 5; then launches run ahead of large ones. By default the host waits for all of it, from 400 us on.

    small: kernels before the host is ahead."""
    step = Step(2000)
    for i in range(small):
        step.kernel(SMALL, 95 + 20 * i, 100 + 20 * i, launched_at=90 + 20 * i)
    at = 95 + 20 * small
    for i in range(4):
        step.kernel(GEMM, at, at + (1900 - at) // (4 - i), "aten::mm", launched_at=90 + 20 * small + 2 * i)
        at += (1900 - at) // (4 - i)
    if waits is not None:
        step.host(WAITS, *waits)
    return step


@pytest.mark.parametrize("small", [1, 5, 15])
def test_all_idle_time_until_the_host_is_ahead_again_is_the_waits(small: int) -> None:
    """The first pause and those between small kernels behind it; and what the step ends with."""
    idle = line_of(ramp(small=small)).by_work()[Work.HOST] / US
    assert cost(ramp(small=small)) == idle == 95 + 15 * small + 100
    assert cost(ramp(None, small)) == 0, "the control: a host that launches as slowly and waits for nothing"


@pytest.mark.parametrize("took", [1, 10, 120])
def test_a_wait_costs_no_more_than_it_took(took: int) -> None:
    """A host that is slow anyway and reads when the device is nearly done: without the read it is as slow."""
    step = ramp((1900 - took, 1900), small=15)
    assert cost(step) == took


def test_a_host_that_is_ahead_again_owes_nothing_more() -> None:
    """Two pauses behind a wait of 300 us, the second behind work that was launched 400 ahead."""

    def planted(lead: int) -> Step:
        step = Step(2000).kernel(GEMM, 0, 400).host(WAITS, 100, 400)
        step.kernel(GEMM, 500, 1000, launched_at=495)
        step.kernel(GEMM, 1000, 1400, launched_at=1000 - lead)
        return step.kernel(GEMM, 1500, 2000, launched_at=1495)

    assert cost(planted(400)) == 100
    assert cost(planted(100)) == 200, "the control: it is not as far ahead as it was"


def test_a_wait_behind_which_work_is_queued_costs_nothing() -> None:
    """As a loop that keeps a step ahead waits for an event of the step before."""
    step = Step(1000)
    for i in range(5):
        step.kernel(GEMM, 180 * i, 180 * (i + 1), launched_at=i)
    assert cost(step.host("cudaEventSynchronize", 10, 540)) == 0


def test_pauses_between_kernels_that_were_queued_in_time_are_not_for_a_wait() -> None:
    """A device takes a microsecond or two from one kernel to the next."""

    def planted(queued: bool) -> Step:
        step = Step(1000).kernel(GEMM, 0, 500).host(WAITS, 10, 500)
        for i in range(5):
            at = 520 + 96 * i
            step.kernel(GEMM, at, at + 94, launched_at=510 + i if queued else at)
        return step

    assert cost(planted(True)) == 20 + 2
    assert cost(planted(False)) == 20 + 4 * 2 + 2, "the control: launched one by one"


def test_a_step_that_ends_with_work_queued_leaves_the_next_one_a_busy_device() -> None:
    """Under the profiler it begins on an idle one all the same, and that is not the doing of a wait in its midst."""
    step = Step(1000).kernel(GEMM, 100, 600, launched_at=50).host(WAITS, 110, 600)
    assert cost(step.kernel(GEMM, 620, 1100, launched_at=615)) == 20
    assert cost(replace(step, microseconds=1100)) == 120, "the control: it ends when its work is done"


@pytest.mark.parametrize("followed", [True, False])
def test_a_wait_in_a_thread_that_launches_nothing_holds_no_launch_up(followed: bool) -> None:
    """As a loader's that waits for its own copy. It is known by that the profiler sees no operators in it."""
    step = ramp(None, small=15)
    step.raw.append(Raw(WAITS, 400 * US, 1500 * US, FEED, number=700))
    if followed:
        step.raw.append(Raw("aten::empty", 10 * US, US, FEED, number=701))
    assert (cost(step) > 0) == followed


def test_waits_at_once_in_two_threads_are_one() -> None:
    step = ramp((1700, 1750), small=15)
    step.raw += [Raw(WAITS, 1700 * US, 50 * US, FEED, number=700), Raw("aten::empty", 10 * US, US, FEED, number=701)]
    assert cost(step) == 50


@pytest.fixture(scope="module")
def with_read() -> Record:
    return read_record(DATA / "h200_step_with_read.json.gz")


def reads_of(record: Record) -> Mapping[str, int]:
    (one,) = record.traced
    return segments_of(one.events, one.where, Surroundings(), True).reads


def without_waits(record: Record) -> Record:
    """As if the host had not waited, at the times at which it launched."""
    (one,) = record.traced
    names = tuple("cudaEventQuery" if WAIT.match(name) else name for name in one.events.names)
    return replace(record, traced=(replace(one, events=replace(one.events, names=names)),))


def test_a_value_that_was_read_on_a_gpu_is_named_with_what_it_cost(with_read: Record) -> None:
    """Of 8.7 ms without work 6.5 are of the 123 that the host stood: 0.7 before the first kernel, 0.6 behind the last, and
    the others while the host launches, pause by pause, until it is ahead."""
    (took,) = reads_of(with_read).values()
    assert took / 1e6 == pytest.approx(6.5, abs=0.05)
    found = {one.name: one for one in analyse(with_read).found}
    said = found["host-reads"]
    assert "the host waits for the device once a step, between the passes" in said.sentence
    assert said.remedy is not None
    assert said.remedy.text.startswith("read values late")
    assert said.seconds == pytest.approx(took / 1e9), "the timed steps, of other tokens, were idle for longer"


def test_a_step_in_which_nothing_was_read_is_not_blamed(with_read: Record) -> None:
    """Begun on an idle device, too, since the tracer waits before it begins."""
    for record in (without_waits(with_read), read_record(DATA / "h200_step.json.gz")):
        assert not reads_of(record)
        assert "host-reads" not in {one.name for one in analyse(record).found}


def test_a_host_that_waited_a_moment_only_is_slow_by_itself(with_read: Record) -> None:
    """The same step with a wait of 9 us, as the host does that has no lead to lose."""
    (one,) = with_read.traced
    waits = np.array([bool(WAIT.match(name)) for name in one.events.names]) & one.events.of_kind(Source.RUNTIME)
    events = replace(one.events, start=np.where(waits, one.events.end - 9 * US, one.events.start))
    record = replace(with_read, traced=(replace(one, events=events),))
    assert sum(reads_of(record).values()) == 9 * US
    assert "host-reads" not in {each.name for each in analyse(record).found}
