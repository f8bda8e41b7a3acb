"""Promise: what a run is compared with was measured, says where, and is not carried too far."""

from pathlib import Path

import pytest
from benchmarks.profile_tables import tables

from dynotune.measure.kernel_classes import Work
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.analysis.attention import saving
from dynotune.profile.analysis.breakdown import breakdown_of
from dynotune.profile.analysis.measured import attention_rate, nearest_speed, speeds
from dynotune.profile.records.record import Environment
from tests.profile.made import Step, record, timed

MEASURED = Path(__file__).parents[3] / "src" / "dynotune" / "profile" / "analysis" / "measured"


def test_the_shipped_tables_are_made_from_the_kept_results() -> None:
    assert {name: (MEASURED / name).read_text(encoding="utf-8") for name in tables()} == tables()
    assert all((MEASURED.parents[4] / one.source).is_file() for one in speeds())


def test_another_gpu_or_other_steps_are_no_comparison() -> None:
    assert nearest_speed("NVIDIA H200", "sft", True, 16_000) is not None
    assert nearest_speed("NVIDIA A100", "sft", True, 16_000) is None
    assert nearest_speed("NVIDIA H200", "sft", False, 16_000) is None
    assert nearest_speed("NVIDIA H200", "sft", True, 500_000) is None
    assert attention_rate("NVIDIA H200", ("varlen",), [4096] * 4, 128) is not None
    assert attention_rate("NVIDIA H200", ("varlen",), [20] * 100, 128) is None


def test_a_run_as_fast_as_the_kept_one_is_all_of_it() -> None:
    kept = nearest_speed("NVIDIA H200", "sft", True, 16_384)
    assert kept is not None
    flops = int(kept.mfu * kept.peak_tflops * 1e12)
    steps = timed(1.0, real_tokens=16_384, processed_tokens=16_384, model_flops=flops)
    found = analyse(record(timed=steps, traced=()))
    assert found.expected is not None
    assert found.expected.share == pytest.approx(1.0)
    assert kept.source in found.expected.what
    assert "no speed of a run on a CPU" in analyse(record(environment=Environment("cpu"))).no_expectation


def test_leaving_a_slow_attention_is_predicted_from_a_measured_rate() -> None:
    step = Step(400_000).kernel("fmha_cutlassF_bf16_aligned", 0, 400_000)
    one = record(step, traced=(step.traced(lengths=(4096, 4096)),), trainer="trl", timed=timed(0.4))
    breakdown = breakdown_of(one)
    assert breakdown is not None
    rate = attention_rate("NVIDIA H200", ("varlen",), [4096, 4096], 128)
    assert rate is not None
    need = 3.5 * 4 * (2 * 4096**2 / 2) * 28 * 128 * 28 / (rate.tflops * 1e12)
    assert breakdown.row(Work.ATTENTION).seconds == pytest.approx(0.4)
    assert saving(one, breakdown) == pytest.approx(0.4 - need)
