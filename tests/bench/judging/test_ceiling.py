"""Promise: no change is said to gain more than what it touches takes of the baseline's step; a right figure is not doubted,
and where nothing is known of the share, that is said."""

from typing import Any

import pytest

from dynotune.bench.asking.arms import Arm
from dynotune.bench.asking.asked import Pairing
from dynotune.bench.judging.ceiling import Ceiling, ceiling
from dynotune.bench.judging.comparison import comparison
from dynotune.bench.running.tally import Tally
from dynotune.config.sft import SFTConfig
from dynotune.measure.kernel_classes import Work
from dynotune.results.result import Block, Verdict

PAIRING = Pairing("b", "a", "b", "whole")


def arm(name: str, **keys: Any) -> Arm:
    return Arm(name, SFTConfig(model_name_or_path="m", dataset_name="d", **keys))


def stood(*installed: str, precision: str = "bfloat16") -> dict[str, Any]:
    return {"installed": list(installed), "precision": precision}


def spent(on_device: bool = True, **seconds: float) -> dict[str, Any]:
    """Of a step of 1,000 tokens, in seconds by the names of classes."""
    return {
        "seconds": {str(work): seconds.get(work.name.lower(), 0.0) for work in Work},
        "on_device": on_device,
        "real_tokens": 1000,
    }


STEP = spent(gemm=0.6, elementwise=0.1, optimizer=0.2, copies=0.05, host=0.05)
"""1 s, 0.95 s of them on the device."""


def of(name: str, step: dict[str, Any] | None = STEP, seconds: float = 1.0) -> Ceiling:
    """Of switching one speed-up on."""
    return ceiling(arm("a"), arm("b", speedups={name: "on"}), (stood(), stood(name)), step, seconds / 1000)


class TestTheShare:
    def test_what_is_left_must_still_run(self) -> None:
        """Of 1 s, 0.7 s of products and norms stay: the update, casts and idle time may all go."""
        found = of("fused_optimizer")
        assert found.ratio == pytest.approx(1 / 0.7)
        assert found.share == pytest.approx(0.3)

    def test_a_host_that_is_slower_than_its_device_leaves_more_to_gain(self) -> None:
        """The same kernels in a step that takes twice as long: launches that go may have been all of it."""
        assert of("fused_optimizer", seconds=2.0).ratio == pytest.approx(2 / 0.7)

    def test_a_step_is_never_shorter_than_its_kernels(self) -> None:
        assert of("fused_optimizer", seconds=0.2).ratio == pytest.approx(0.95 / 0.7)

    def test_on_the_cpu_pythons_own_time_may_go_too(self) -> None:
        step = spent(False, gemm=0.5, optimizer=0.1, host=0.4)
        assert of("fused_optimizer", step).ratio == pytest.approx(2.0)

    def test_it_counts_whichever_arm_has_it(self) -> None:
        without = ceiling(
            arm("a"), arm("b", speedups={"fused_optimizer": "off"}), (stood("fused_optimizer"), stood()), STEP, 1e-3
        )
        assert without.ratio == of("fused_optimizer").ratio

    def test_additions_around_an_adapter_go_with_it(self) -> None:
        assert of("fused_lora").share == pytest.approx(0.2)

    def test_where_all_may_go_there_is_no_ratio(self) -> None:
        found = of("fused_optimizer", spent(optimizer=1.0))
        assert found.ratio is None
        assert found.share == 1


class TestNoCeiling:
    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("packed_execution", "packed_execution lays steps out otherwise"),
            ("activation_full", "activation_full may touch all of a step"),
        ],
    )
    def test_of_what_may_touch_everything(self, name: str, why: str) -> None:
        assert of(name) == Ceiling(why_not=why)

    def test_of_another_precision(self) -> None:
        one, other = arm("a"), arm("b", use_liger_kernel=True)
        found = ceiling(one, other, (stood(), stood("liger_rope", precision="float32")), STEP, 1e-3)
        assert found.why_not == "precision differs (bfloat16 and float32)"

    def test_of_other_keys(self) -> None:
        found = ceiling(arm("a"), arm("b", learning_rate=1e-3), (stood(), stood()), STEP, 1e-3)
        assert found.why_not == "`learning_rate` may touch all of a step"

    def test_of_several_devices(self) -> None:
        one, other = arm("a", gpus=2), arm("b", gpus=2, speedups={"fused_optimizer": "off"})
        assert ceiling(one, other, (stood("fused_optimizer"), stood()), STEP, 1e-3).why_not

    def test_of_a_step_that_was_not_traced(self) -> None:
        assert of("fused_optimizer", None).why_not == "no step of a was traced"


def measured(ratio: float, **more: Any) -> Any:
    """A comparison of pairs that are quiet, and that far apart."""
    tally = Tally(["a", "b"])
    for pair in range(6):
        for name, rate in (("a", 1000.0), ("b", 1000.0 * ratio * (1 + 0.001 * (-1) ** pair))):
            tally.blocks.append(
                Block(
                    arm=name,
                    pair=pair,
                    first_step=1,
                    steps=1,
                    examples=1,
                    documents=1,
                    real_tokens=1000,
                    label_tokens=1000,
                    processed_tokens=1000,
                    seconds=1000 / rate,
                )
            )
    return comparison(tally, PAIRING, [0.001], 0, not_comparable="", **more)


def test_what_is_too_good_is_suspect() -> None:
    """Planted: twice as fast by an update that takes three tenths of the step."""
    found = measured(2.0, ceiling=of("fused_optimizer"))
    assert found.verdict is Verdict.SUSPECT
    assert "2.00x is above 1.43x" in found.why
    assert found.ceiling == pytest.approx(1 / 0.7)


@pytest.mark.parametrize("ratio", [0.8, 1.0, 1.2, 1.43, 1.49])
def test_what_can_be_is_not(ratio: float) -> None:
    """Up to the ceiling, and as far above it as one traced step may be from the others."""
    assert measured(ratio, ceiling=of("fused_optimizer")).verdict is not Verdict.SUSPECT


def test_without_a_ceiling_its_reason_stands_there() -> None:
    found = measured(2.0, ceiling=of("packed_execution"))
    assert found.verdict is Verdict.FASTER
    assert found.ceiling is None
    assert found.no_ceiling == "packed_execution lays steps out otherwise"
