"""Promise: each cause that is planted is named, with its cost; a run without any is called clean."""

from dataclasses import replace

import pytest

from dynotune.measure.kernel_classes import Work
from dynotune.measure.timelines.rows import DATA_MARK
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.analysis.findings import Finding, Findings
from dynotune.profile.records.record import EVALUATE, Environment, TimedStep
from tests.profile.made import FP32, GEMM, Step, busy, model, record, timed


def the(found: Findings, name: str) -> Finding:
    assert name in [one.name for one in found.found], [one.sentence for one in found.found]
    return next(one for one in found.found if one.name == name)


def test_a_clean_run_is_called_clean() -> None:
    found = analyse(record())
    assert found.clean, [one.sentence for one in found.found]
    assert found.bottleneck.startswith("The step is bound by its own work: 100 % of it GEMM")


def test_a_slow_loader() -> None:
    step = busy(600, 6).host(DATA_MARK, 600, 990, marked=True)
    step.microseconds = 1000
    found = analyse(record(step))
    one = the(found, "slow-loader")
    assert one.seconds == pytest.approx(390e-6)
    assert found.bottleneck.startswith("The bottleneck: waiting for data")
    assert one.remedy is not None
    assert one.remedy.ceiling == pytest.approx(1 / 0.61)
    assert "speedups.prefetch=on" in one.remedy.command


def test_a_value_that_is_read_in_the_loop() -> None:
    """The host waits for the device, the queue runs empty, and the device waits for the host."""
    step = busy(400, 4)
    step.host("cudaStreamSynchronize", 10, 401)
    for i in range(4):
        step.kernel(GEMM, 500 + 100 * i, 600 + 100 * i, "aten::mm", launched_at=495 + i)
    step.microseconds = 900
    found = analyse(record(step))
    one = the(found, "host-reads")
    assert one.seconds == pytest.approx(100e-6, rel=0.05)
    assert not analyse(record(busy(900, 9).host("cudaStreamSynchronize", 10, 901))).found, "a wait that costs nothing"


def test_a_value_that_is_read_behind_the_step() -> None:
    """As callbacks read it: the host waits for all of the step, and the next one begins on a device that has nothing to do.
    Controls: a wait that ends before the device does, and a step that begins late without any."""

    def found(waits: tuple[int, int] | None) -> Findings:
        step = Step(905)
        for i in range(8):
            step.kernel(GEMM, 100 + 100 * i, 200 + 100 * i, "aten::mm", launched_at=60 + i)
        if waits is not None:
            step.host("cudaStreamSynchronize", *waits)
        return analyse(record(step))

    one = the(found((75, 901)), "host-reads")
    assert one.seconds == pytest.approx(100e-6, rel=0.1)
    for other in (found((75, 600)), found(None)):
        assert "host-reads" not in {one.name for one in other.found}


def test_a_model_in_float32_where_bf16_was_asked_for() -> None:
    one = the(analyse(record(busy(dtypes=FP32))), "full-precision-products")
    assert "100 % of the FLOPs" in one.sentence
    assert one.remedy is not None
    assert one.remedy.setting == "bf16=true"
    nobody_asked = record(busy(dtypes=FP32), model=model(asked_precision=""))
    assert analyse(nobody_asked).clean


def test_a_fill_of_30_percent() -> None:
    tokens = {"real_tokens": 300, "processed_tokens": 1000}
    found = analyse(record(timed=timed(1e-3, **tokens), traced=(busy().traced(**tokens),)))
    one = the(found, "low-fill")
    assert "fill 30 %" in one.sentence
    assert one.remedy is not None
    assert one.remedy.ceiling == pytest.approx(1 / 0.3, rel=0.01)


def test_shapes_that_recompile() -> None:
    steps = list(timed(1e-3, real_tokens=950))
    steps[7] = replace(steps[7], seconds=0.5, compilations=2)
    one = the(analyse(record(timed=tuple(steps))), "recompiling")
    assert "2 new graphs in 1 of 20 steps" in one.sentence
    assert one.seconds == pytest.approx(0.499 / 20)


def test_an_optimizer_that_is_not_fused() -> None:
    step = busy(800, 8).host("Optimizer.step#AdamW.step", 800, 1000, marked=True)
    for i in range(100):
        step.kernel(
            "void at::native::vectorized_elementwise_kernel<4>", 800 + 2 * i, 802 + 2 * i, launched_at=800 + 2 * i
        )
    step.microseconds = 1000
    one = the(analyse(record(step, optimizer="AdamW (for-loop)")), "unfused-optimizer")
    assert "100 kernels" in one.sentence
    assert analyse(record(step, optimizer="AdamW (fused)")).clean


def test_weights_on_the_cpu() -> None:
    found = analyse(record(model=model("cpu")))
    assert "100 % of the weights lie on cpu" in the(found, "weights-elsewhere").sentence
    unused = record(None, environment=Environment("cpu", gpus=2))
    assert "2 GPUs that PyTorch sees are not used" in the(analyse(unused), "weights-elsewhere").sentence


def test_something_every_50_steps() -> None:
    steps = [TimedStep(n, 0.3 if n % 50 == 0 else 0.01, happened=(EVALUATE,) * (n % 50 == 0)) for n in range(1, 201)]
    one = the(analyse(record(timed=tuple(steps))), "slow-evaluate")
    assert "every 50 steps" in one.sentence


def test_one_collection_of_garbage_is_no_bottleneck() -> None:
    def steps(slow: int) -> tuple[TimedStep, ...]:
        what = ("garbage-collection",)
        return tuple(
            TimedStep(n, 0.05 if n <= slow else 0.01, happened=what if n <= slow else ()) for n in range(1, 21)
        )

    for few in (1, 2):
        assert not [one for one in analyse(record(timed=steps(few))).found if one.name.startswith("slow-")]
    assert the(analyse(record(timed=steps(3))), "slow-garbage-collection").seconds == pytest.approx(0.12 / 20)


def test_a_cycle_that_nothing_happens_in() -> None:
    steps = tuple(TimedStep(n, 0.05 if n % 50 == 7 else 0.01 + 1e-5 * (n % 3)) for n in range(1, 301))
    assert "50 steps" in the(analyse(record(timed=steps)), "periodic-slow-down").sentence


def test_a_host_that_launches_too_slowly() -> None:
    step = Step(1000)
    for i in range(10):
        step.kernel(GEMM, 100 * i, 100 * i + 40, "aten::mm")
    found = analyse(record(step))
    assert the(found, "host-bound").seconds == pytest.approx(600e-6)
    assert "for the host to launch" in found.bottleneck


def test_communication_that_nothing_hides() -> None:
    step = busy(800, 8).kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 700, 1000)
    step.microseconds = 1000
    found = analyse(record(step))
    assert the(found, "exposed-communication").seconds == pytest.approx(200e-6)
    assert found.hidden_communication == pytest.approx(100e-6)
    assert sum(row.seconds for row in found.rows) == pytest.approx(found.step_seconds)


@pytest.mark.parametrize("slow", [0, 2])
def test_the_slowest_rank_is_named_also_where_it_is_the_one_that_is_shown(slow: int) -> None:
    own = {rank: 900e-6 if rank == slow else 600e-6 for rank in range(4)}
    found = analyse(replace(record(busy()), own_seconds=own))
    one = the(found, "ranks-wait")
    assert f"rank {slow} is the slowest: its own work takes 0.9 ms, that of others 0.6 ms" in one.sentence
    assert one.seconds == pytest.approx(300e-6)


def test_even_ranks_wait_for_nobody() -> None:
    """The control."""
    found = analyse(replace(record(busy()), own_seconds={0: 900e-6, 1: 905e-6}))
    assert not [one for one in found.found if one.name == "ranks-wait"]


def test_without_a_trace_the_timing_is_still_read() -> None:
    found = analyse(record(traced=(), timed=timed(0.1, data_wait=0.05)))
    assert the(found, "slow-loader").seconds == pytest.approx(0.05)
    assert any("no step was traced" in line for line in found.cannot_know)
    assert Work.GEMM not in [row.work for row in found.rows]
