"""Promise: processes are begun where blocks need them, and not to be asked what one of them can tell."""

from pathlib import Path
from typing import Any, Self

import pytest

from dynotune.bench.asking.arms import Arm
from dynotune.bench.asking.asked import Asked
from dynotune.bench.asking.schedule import Rules
from dynotune.bench.command import Options, _rules
from dynotune.bench.judging.conclude import _notes
from dynotune.bench.running import cast
from dynotune.bench.running.cast import Cast, Warm, on_gpu
from dynotune.bench.running.measure import Measured
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.results.result import Tier

ARMS = (Arm("a", SFTConfig(gpus=2)), Arm("b", SFTConfig(gpus=2, bf16=False)))


class Silent:
    """Answers without a process."""

    begun: list[str]
    asked: list[tuple[str, dict[str, Any]]]

    def __init__(self, arm: Arm, *_: object) -> None:
        self.begun.append(arm.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stand(self, arm: Arm) -> dict[str, Any]:
        return {}

    def do(self, what: str, **order: Any) -> dict[str, Any]:
        self.asked.append((what, order))
        return {"sample": [3], "plan": [3, 4]} if what == "lengths" else {"flops": 1e15}


def test_what_a_fresh_process_tells_takes_one_and_no_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Silent.begun, Silent.asked = [], []
    monkeypatch.setattr(cast, "Hand", Silent)
    of = Cast(ARMS, Tier.FRESH, tmp_path, {}, lambda text: None)
    lengths, flops = of.told([(11, 20), (31, 20)], products=True)
    assert Silent.begun == ["a"]
    assert [what for what, _ in Silent.asked] == ["lengths", "products"]
    assert lengths["plan"] == [3, 4]
    assert flops == 2e15  # of both devices
    assert set(of.held) == {"a"}


def options(**more: Any) -> Options:
    return Options(ARMS[0].config, "a", **more)


def test_fresh_processes_run_fewer_pairs() -> None:
    assert _rules(options(), fresh=False).most_pairs == 16
    assert _rules(options(), fresh=True).most_pairs == 6
    assert _rules(options(quick=True), fresh=False).most_pairs == 6


def test_a_number_of_pairs_that_was_typed_is_taken_as_typed() -> None:
    """Also where it is less than the default of the other; 0 is no default."""
    few = _rules(options(most_pairs=3), fresh=False)
    assert (few.pairs, few.most_pairs) == (3, 3)
    many = _rules(options(pairs=20), fresh=True)
    assert (many.pairs, many.most_pairs) == (20, 20)
    for wrong in ({"pairs": 0}, {"most_pairs": 0}, {"pairs": 8, "most_pairs": 4}):
        with pytest.raises(ConfigError):
            _rules(options(**wrong), fresh=False)


def test_a_configuration_for_the_cpu_is_on_no_gpu() -> None:
    assert not on_gpu(Arm("a", SFTConfig(use_cpu=True)))


def test_device_seconds_are_those_of_each_arms_own_devices(tmp_path: Path) -> None:
    """Two seconds of one device and three of two are eight."""
    arms = (Arm("a", SFTConfig()), Arm("b", SFTConfig(gpus=2)))
    of = Cast(arms, Tier.RESIDENT, tmp_path, {}, lambda text: None, held={"a": 1.5, "b": 3.0})
    asked = Asked("ab", arms, (), Rules(), 5, 0, tmp_path, "dynotune bench")
    found = Measured(
        names=["a", "b"], asked=asked, tier=Tier.RESIDENT, why_tier="", cast=of, gated={"a": 0.2}, probed={"a": 0.3}
    )
    assert [found.device_seconds(arm) for arm in arms] == [2.0, 6.0]
    assert found.spent == 8.0


def test_what_a_traced_step_should_not_hold_is_a_note_of_the_bench(tmp_path: Path) -> None:
    """Control: of an arm without such a thing nothing is said."""
    asked = Asked("ab", ARMS, (), Rules(), 5, 0, tmp_path, "dynotune bench")
    of = Cast(ARMS, Tier.RESIDENT, tmp_path, {}, lambda text: None)
    for name, held in (("a", ()), ("b", ("waits of the host (aten::item (forward, layers.1) x 2)",))):
        of.warm[name] = Warm({}, 8, 1.0, 0.5, 0.1, 0.0, (), True, "", 100.0, 0.1, unwanted=held)
    found = Measured(names=["a", "b"], asked=asked, tier=Tier.RESIDENT, why_tier="", cast=of)
    assert _notes(found) == ["A step of b holds waits of the host (aten::item (forward, layers.1) x 2)."]
