"""Promise: what a profile says of a run whose truth is known is that truth: shares of the whole step, no idle time twice, no
ceiling above what taking the cause away would give, and nothing found in noise.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.measure.kernel_classes import IDLE, Surroundings, Work
from dynotune.measure.timelines.rows import DATA_MARK, RANKS_MARK, segments_of
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.analysis.breakdown import breakdown_of, timed_for
from dynotune.profile.analysis.detect import found_in
from dynotune.profile.analysis.findings import Finding
from dynotune.profile.analysis.ranks import uneven
from dynotune.profile.analysis.remedies import ceiling
from dynotune.profile.records.record import EVALUATE, LOG, SAVE, Record, TimedStep
from tests.profile.made import FP32, GEMM, PRODUCT, US, Step, busy, model, record, timed

NCCL, COPY = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "Memcpy HtoD (Pinned -> Device)"

spans = st.tuples(st.integers(0, 900), st.integers(1, 300), st.sampled_from((GEMM, NCCL, COPY)))
waits = st.tuples(
    st.integers(0, 900), st.integers(1, 300), st.sampled_from((DATA_MARK, RANKS_MARK, "cudaDeviceSynchronize"))
)


def found(one: Record, name: str) -> Finding:
    return next(each for each in found_in(one, breakdown_of(one)) if each.name == name)


def names(one: Record) -> list[str]:
    return [each.name for each in found_in(one, breakdown_of(one))]


def steps(seconds: Sequence[float], **more: Sequence[object]) -> tuple[TimedStep, ...]:
    """One step for each of the seconds; more: of each step too."""
    return tuple(
        TimedStep(i + 1, float(one), **{name: values[i] for name, values in more.items()})  # type: ignore[arg-type]
        for i, one in enumerate(seconds)
    )


def planted(kernels: list[tuple[int, int, str]], marks: list[tuple[int, int, str]], length: int = 1200) -> Step:
    step = Step(length)
    for start, took, name in kernels:
        step.kernel(name, start, start + took, launched_at=min(start, 990))
    for start, took, name in marks:
        step.host(name, start, start + took, marked=name in (DATA_MARK, RANKS_MARK))
    return step


@settings(deadline=None, max_examples=80)
@given(st.lists(spans, max_size=20), st.lists(waits, max_size=5))
def test_each_microsecond_is_counted_once(
    kernels: list[tuple[int, int, str]], marks: list[tuple[int, int, str]]
) -> None:
    """Streams side by side, hidden communication, waits that overlap: held against painting each microsecond."""
    truth, painted, hidden = dict.fromkeys(Work, 0), [set[str]() for _ in range(1200)], 0
    for start, took, name in (*kernels, *marks):
        for at in range(start, start + took):
            painted[at].add(name)
    for at in painted:
        hidden += NCCL in at and bool(at & {GEMM, COPY})
        if GEMM in at:
            truth[Work.GEMM] += 1
        elif COPY in at:
            truth[Work.COPIES] += 1
        elif NCCL in at:
            truth[Work.COMMUNICATION] += 1
        elif DATA_MARK in at:
            truth[Work.DATA] += 1
        else:
            truth[Work.RANKS if RANKS_MARK in at else Work.HOST] += 1
    step = planted(kernels, marks)
    one = step.traced()
    line = segments_of(one.events, one.where, Surroundings(), True)
    assert {work: took / US for work, took in line.by_work().items()} == truth
    assert line.hidden == hidden * US
    assert sum(line.reads.values()) <= truth[Work.HOST] * US


@settings(deadline=None, max_examples=80)
@given(st.lists(spans, max_size=20), st.lists(waits, max_size=5), st.floats(0.1, 3.0))
def test_rows_are_the_step_and_idle_time_is_neither_negative_nor_twice(
    kernels: list[tuple[int, int, str]], marks: list[tuple[int, int, str]], pace: float
) -> None:
    """However much slower or faster than the traced steps the timed ones were."""
    step = planted(kernels, marks)
    seconds = pace * 1.2e-3
    for where in ("cuda:0", "cpu"):
        steps_ = timed(seconds, data_wait=0.3 * seconds, real_tokens=950, processed_tokens=1000)
        one = breakdown_of(record(step, timed=steps_, model=model(where)))
        assert one is not None
        assert one.seconds == pytest.approx(seconds)
        assert sum(row.seconds for row in one.rows) == pytest.approx(seconds)
        assert sum(row.share for row in one.rows) == pytest.approx(1)
        assert all(row.seconds > 0 for row in one.rows)
        idle = sum(row.seconds for row in one.rows if row.work in IDLE)
        busy_ = sum(row.seconds for row in one.rows if row.work not in IDLE)
        assert idle <= seconds - busy_ + 1e-9
        assert sum(one.reads.values()) <= one.row(Work.HOST).seconds + 1e-9
        assert all(each.ceiling >= 1 for each in analyse(record(step, timed=steps_)).remedies)


def test_a_read_has_no_more_than_the_idle_time_that_waits_for_data_leave() -> None:
    """300 us idle for data and 300 behind a read under the profiler, 300 in all without it."""
    step = planted([(0, 300, GEMM), (900, 300, GEMM)], [(5, 300, "cudaStreamSynchronize"), (600, 300, DATA_MARK)])
    assert sum(breakdown(record(step)).reads.values()) == pytest.approx(300e-6), "the control: the whole step is there"
    longer = breakdown(record(step, timed=timed(2e-3)))
    assert longer.row(Work.HOST).seconds == pytest.approx(1.1e-3)
    assert sum(longer.reads.values()) == pytest.approx(300e-6), "what else they waited for is not known"
    one = breakdown(record(step, timed=timed(0.9e-3)))
    assert one.row(Work.DATA).seconds == pytest.approx(300e-6)
    assert sum(one.reads.values()) == pytest.approx(0, abs=1e-12)


def breakdown(one: Record):  # type: ignore[no-untyped-def]
    rows = breakdown_of(one)
    assert rows is not None
    return rows


def test_a_wait_that_is_not_known_is_that_of_the_traced_step() -> None:
    """On a CPU: 150 ms of waiting and 20 of work at 1,000 tokens; the traced step waits as long and has half the tokens."""
    step = planted([], [(0, 1058, DATA_MARK)])
    step.host("aten::mm", 1060, 1200, shapes=PRODUCT, dtypes=FP32)
    step = replace(step, microseconds=1200)
    traced = (step.traced(real_tokens=500, processed_tokens=500),)
    for known in (0.0010, None):
        each = timed(0.0012, data_wait=known, real_tokens=1000, processed_tokens=1000)
        one = breakdown(record(step, timed=each, traced=traced, model=model("cpu")))
        assert one.seconds == pytest.approx(1.0e-3 + 0.1e-3, rel=0.06), known


@pytest.mark.parametrize("fixed", [0.0, 0.3, 0.9])
def test_what_does_not_grow_with_tokens_is_not_scaled(fixed: float) -> None:
    """Launching or an update takes its time whatever a step holds. Traced steps have twice the usual tokens."""
    draw = np.random.default_rng(3)
    for _ in range(20):
        tokens = np.round(1000 * draw.lognormal(0, 0.4, 20))
        seconds = 0.1 * (fixed + (1 - fixed) * tokens / 1000) * (1 + 0.01 * draw.standard_normal(20))
        one = record(
            timed=steps(seconds, real_tokens=[int(n) for n in tokens]),
            traced=(busy().traced(real_tokens=2000, processed_tokens=2000),),
        )
        truth = 0.1 * (fixed + (1 - fixed) * 2)
        assert timed_for(one, True) == pytest.approx(truth, rel=0.06)
    assert abs(0.2 / (0.1 * (0.9 + 0.1 * 2)) - 1) > 0.5, "the control: all of it scaled"


def test_a_loader_that_is_late_in_one_step_of_four_is_found() -> None:
    """Half of the time, and nothing in the median step: traced ones need not have it."""
    wait = [0.4 * (i % 4 == 3) for i in range(20)]
    one = record(busy(100_000), timed=steps([0.1 + each for each in wait], data_wait=wait))
    late = found(one, "slow-loader")
    assert late.seconds == pytest.approx(0.1)
    assert "5 of 20 steps wait for data" in late.sentence
    assert ceiling(0.2, late.seconds) == pytest.approx(2)
    hidden = record(busy(100_000), timed=steps([0.1] * 20, data_wait=wait))
    assert "slow-loader" not in names(hidden), "the control: the device works meanwhile"


def test_graphs_that_are_made_again_have_the_ceiling_of_going_without() -> None:
    """Half of the steps take three times as long, so without that the run is twice as fast and not infinitely."""
    one = record(busy(100_000), timed=steps([0.1, 0.3] * 10, compilations=[0, 1] * 10))
    remedy = found(one, "recompiling").remedy
    assert remedy is not None
    assert remedy.ceiling == pytest.approx(2)


def test_what_happens_together_is_not_counted_twice() -> None:
    """Logging every 5 steps takes 20 ms; every 20 a checkpoint of 400 ms and an evaluation of 600 are in the same steps."""
    happened = [((LOG,) * (i % 5 == 4)) + ((SAVE,) * (i % 20 == 19)) for i in range(100)]
    seconds = [0.1 + 0.02 * (LOG in each) + 0.4 * (SAVE in each) for each in happened]
    one = record(busy(100_000), timed=steps(seconds, happened=happened))
    assert found(one, "slow-save").seconds == pytest.approx(0.4 * 5 / 100)
    assert found(one, "slow-log").seconds == pytest.approx(0.02 * 20 / 100)
    alone = record(busy(100_000), timed=steps(seconds, happened=[(LOG,) * bool(each) for each in happened]))
    assert found(alone, "slow-log").seconds == pytest.approx((0.02 * 20 + 0.4 * 5) / 100), "the control"


NOISE = {
    "uneven work": lambda draw, n: draw.lognormal(0, 0.5, n),
    "noise": lambda draw, n: 1 + 0.1 * draw.standard_normal(n),
    "slow steps": lambda draw, n: 1 + draw.exponential(0.5, n) * (draw.random(n) < 0.1),
}


@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("tokens", [True, False])
def test_in_noise_nothing_is_blamed_on_what_happens_meanwhile(kind: str, tokens: bool) -> None:
    """Logging in half of the steps and evaluation in a fifth that cost nothing, in 200 runs; uneven work with its tokens."""
    if kind == "uneven work" and not tokens:
        pytest.skip("what is not known to be work looks like a cost now and then")
    wrong = 0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        pace = NOISE[kind](draw, 20)
        happened = [((LOG,) * (i % 2)) + ((EVALUATE,) * (i % 5 == 4)) for i in range(20)]
        more = {"processed_tokens": [int(1000 * each) for each in pace]} if tokens and kind == "uneven work" else {}
        one = replace(record(), timed=steps(0.1 * pace, happened=happened, **more), traced=())
        wrong += any(each.startswith("slow-") for each in names(one))
    assert wrong <= 0.05 * 200


def test_the_share_of_the_floor_has_pauses_between_steps_in_it() -> None:
    """Every fourth step takes five times as long: the run is at half of what its usual steps are at."""
    step, tokens = busy(100_000), {"real_tokens": 1000, "processed_tokens": 1000}
    usual = analyse(record(step, timed=timed(0.1, **tokens), traced=(step.traced(**tokens),)))
    paused = steps([0.5 if i % 4 == 0 else 0.1 for i in range(40)], real_tokens=[1000] * 40)
    now = analyse(record(step, timed=paused, traced=(step.traced(**tokens),)))
    assert now.floor_tokens_per_second == usual.floor_tokens_per_second
    assert now.tokens_per_second == pytest.approx((usual.tokens_per_second or 0) / 2)


@pytest.mark.parametrize(
    ("own", "most"), [([0.10, 0.05], 0.05), ([0.10, 0.099, 0.05, 0.05], 0.02525), ([0.1, 0.06, 0.06, 0.06], 0.04)]
)
def test_a_slow_rank_costs_what_others_would_not_take(own: list[float], most: float) -> None:
    """Were it as fast as the next one, or the same work shared out evenly: not the mean of the others where two are slow."""
    said = uneven(replace(record(), own_seconds=dict(enumerate(own))))
    assert said is not None
    assert said[1] == pytest.approx(most)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_products_in_32_bits_have_the_ceiling_that_taking_them_in_16_gives(share: float) -> None:
    """FLOPs at half the rate take two thirds of the time where they are half of them. The step is products alone."""
    whole, step = 100, Step(100 * 10 + 1000)
    slow, at = round(share * whole), 0
    for i in range(whole):
        took = 20 if i < slow else 10
        step.kernel(
            GEMM, at, at + took, "aten::mm", PRODUCT, FP32 if i < slow else ("c10::BFloat16",) * 2, launched_at=i
        )
        at += took
    step = replace(step, microseconds=at)
    one = found(record(step), "full-precision-products")
    assert one.remedy is not None
    assert one.remedy.ceiling == pytest.approx(at / (10 * whole), rel=1e-6)
