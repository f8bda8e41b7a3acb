"""Promise: what `use_liger_kernel` asks for is what it asks for in TRL, and Liger comes behind ours unless it was faster."""

from types import SimpleNamespace
from typing import Any

import pytest

from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.speedups import liger
from dynotune.speedups.choose import Decision
from dynotune.speedups.contract import No
from dynotune.speedups.measured import Measurement
from dynotune.speedups.registry import speedups

NAMES = ("liger_rms_norm", "liger_rope", "liger_swiglu", "liger_cross_entropy")


def asked(**keys: Any) -> dict[str, tuple[str, str]]:
    config = SFTConfig(**keys)
    found = {name: speedups()[name].asked(config) for name in NAMES}
    return {name: one for name, one in found.items() if one is not None}


def test_nothing_is_asked_by_default() -> None:
    assert asked() == {}
    assert asked(use_liger_kernel=False, liger_kernel_config={"rope": True}) == {}


def test_the_kernels_of_the_layers_are_asked_as_in_trl_and_the_loss_by_name() -> None:
    by = ("on", "use_liger_kernel: true")
    assert asked(use_liger_kernel=True) == dict.fromkeys(NAMES[:3], by)
    config = {"rope": False, "swiglu": True, "fused_linear_cross_entropy": True}
    assert asked(use_liger_kernel=True, liger_kernel_config=config) == {
        "liger_rms_norm": by,
        "liger_swiglu": ("on", "liger_kernel_config: {swiglu: true}"),
        "liger_cross_entropy": ("on", "liger_kernel_config: {fused_linear_cross_entropy: true}"),
    }
    both = asked(use_liger_kernel=True, liger_kernel_config={"swiglu": False, "geglu": False})
    assert "liger_swiglu" not in both


def test_a_kernel_that_no_speed_up_takes_is_an_error_and_leaving_it_out_is_none() -> None:
    """Liger ignores names that it does not know."""
    with pytest.raises(ConfigError, match=r"rms_nrom: true.*Did you mean `rms_norm`"):
        SFTConfig(use_liger_kernel=True, liger_kernel_config={"rms_nrom": True})
    with pytest.raises(ConfigError, match="layer_norm"):
        SFTConfig(use_liger_kernel=True, liger_kernel_config={"layer_norm": True})
    SFTConfig(use_liger_kernel=True, liger_kernel_config={"layer_norm": False})


@pytest.mark.parametrize(("ms", "first"), [(None, False), (0.5, True), (0.99, False), (2.0, False)])
def test_liger_comes_first_where_it_was_measured_to_be_faster(
    ms: float | None, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one: Any = speedups()["liger_rms_norm"]
    found = ms and Measurement("*", "9.0", "rms_norm", 1, 1, False, {one.name: ms, one.ours: 1.0}, {}, "", "")
    monkeypatch.setattr(liger, "figures", lambda slot, context: found)
    context: Any = SimpleNamespace()
    assert (one.rank(context) < speedups()[one.ours].rank(context)) == first


@pytest.mark.parametrize("name", NAMES)
def test_each_has_a_rival_of_ours_in_its_slot(name: str) -> None:
    one: Any = speedups()[name]
    assert speedups()[one.ours].slot == one.slot
    assert set(one.keys) <= set(liger.KEYS)


def test_what_the_model_has_no_place_for_stops_only_where_it_was_named() -> None:
    one, nothing = speedups()["liger_swiglu"], No("the model has no gated activation", no_place=True)
    Decision(one, "on", "use_liger_kernel: true").refuse(nothing)
    for asked_by, no in (
        ("speedups: {liger_swiglu: on}", nothing),
        ("use_liger_kernel: true", No("it is not installed")),
    ):
        with pytest.raises(ConfigError):
            Decision(one, "on", asked_by).refuse(no)
