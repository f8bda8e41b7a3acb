"""Promise: what is advised can be written as it stands, has a ceiling of this profile, and none is advised for nothing."""

from dataclasses import replace

import pytest

from dynotune.bench.command import changes_of
from dynotune.config.dpo import DPOConfig
from dynotune.measure.kernel_classes import Work
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.analysis.findings import Kind
from dynotune.profile.analysis.remedies import OURS, THEIRS, ceiling
from dynotune.profile.records.record import SpeedupState
from dynotune.speedups.registry import speedups
from tests.profile.made import GEMM, Step, busy, record, timed


@pytest.mark.parametrize("setting", sorted({setting for _, _, setting in OURS.values() if setting}))
def test_every_setting_of_ours_is_one_that_a_bench_takes(setting: str) -> None:
    assert changes_of(DPOConfig(), [setting])


def test_ours_and_theirs_are_advised_for_the_same_findings() -> None:
    assert set(OURS) == set(THEIRS)


def test_what_speed_ups_touch_are_classes_of_time() -> None:
    names = {str(work) for work in Work}
    assert {name: one.touches for name, one in speedups().items() if not names.issuperset(one.touches)} == {}
    # Policies of activations trade memory; what they gain in time is no class's.
    without = {name for name, one in speedups().items() if not one.touches}
    assert all(name.startswith("activation_") for name in without), without


def test_what_changes_the_recipe_is_not_advised_as_a_switch() -> None:
    """`speedups.eight_bit_optimizer=on` is refused. The control is one that is off beside it."""
    step = Step(1000).kernel("multi_tensor_apply_kernel<FusedAdamMathFunctor>", 0, 1000, "aten::_fused_adamw_")
    off = tuple(SpeedupState(name, "exact", "off") for name in ("eight_bit_optimizer", "fused_optimizer"))
    names = [one.name for one in analyse(record(step, speedups=off)).remedies]
    assert "eight_bit_optimizer" not in names
    assert "fused_optimizer" in names


def test_a_speed_up_that_is_off_is_advised_with_what_it_touches() -> None:
    step = Step(1000).kernel(GEMM, 0, 500, "aten::mm").kernel("vectorized_elementwise_kernel<4>", 500, 1000)
    off = (SpeedupState("rms_norm_kernel", "exact", "off"), SpeedupState("fused_lora", "exact", "left out"))
    found = analyse(record(step, speedups=off))
    one = next(one for one in found.remedies if one.name == "rms_norm_kernel")
    assert one.ceiling == pytest.approx(2.0)
    assert one.kind is Kind.EXACT
    assert one.command.endswith("--set speedups.rms_norm_kernel=on")
    assert "fused_lora" not in [one.name for one in found.remedies], (
        "what cannot be here and has no remedy is not advised"
    )
    assert not analyse(record(speedups=off)).remedies, "nothing worth doing is an answer"


def test_a_ceiling_is_amdahls() -> None:
    assert ceiling(1.0, 0.5) == 2.0
    assert ceiling(1.0, 0.0) == 1.0
    assert ceiling(1.0, 1.0) == float("inf")


def test_what_runs_already_is_not_advised() -> None:
    tokens = {"real_tokens": 300, "processed_tokens": 1000}
    one = record(timed=timed(1e-3, **tokens), traced=(busy().traced(**tokens),))
    assert analyse(one).remedies[0].setting == "packed_execution=auto"
    packed = replace(one, speedups=(SpeedupState("packed_execution", "exact", "installed"),))
    assert analyse(packed).remedies[0].setting == ""
    assert analyse(packed).remedies[0].kind is Kind.BEHAVIOURAL
