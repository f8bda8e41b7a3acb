"""Promise: `dynotune plan` counts what training keeps without a speed-up, too, by the modules' own operations."""

from pathlib import Path
from typing import Any

import pytest

from dynotune.estimate.memory import step_memory
from dynotune.speedups.activation import POLICIES
from tests.estimate.test_lora_in_activation import (  # noqa: F401  (fixtures)
    FULL,
    GPU,
    HALF,
    config_of,
    folder,
    numbers,
    trained,
)

NAMES = ("gated_activation_kernel", "rms_norm_kernel", "rotary_kernel", "fused_lora", "packed_execution")


@pytest.mark.parametrize("precision", [FULL, HALF], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_off_is_counted_as_training_counts_it(
    folder: Path,  # noqa: F811
    trained: Any,  # noqa: F811
    name: str,
    precision: Any,
) -> None:
    keys: dict[str, Any] = {"packed_execution": "auto"}
    if precision is HALF:
        keys |= {"bf16": None, "dtype": None}
    config = config_of(folder, speedups={name: "off"}, **keys)
    live, installed = trained(config, precision)
    assert installed.get(name) is None
    planned = step_memory(config, GPU)
    assert planned.precision == precision
    for policy in POLICIES:
        assert numbers(planned.under(policy).per_token) == numbers(live.under(policy).per_token), policy


def test_what_kernels_keep_less(folder: Path) -> None:  # noqa: F811
    """The control: a plan that took no notice would count the same."""
    keys: dict[str, Any] = {"packed_execution": "auto", "bf16": None, "dtype": None}
    kept = {
        name: step_memory(config_of(folder, speedups={name: "off"} if name else {}, **keys), GPU).counted.kept
        for name in ("", *NAMES)
    }
    compiled = step_memory(config_of(folder, speedups={"compiled_layers": "on"}, **keys), GPU).counted.kept
    assert compiled == step_memory(config_of(folder, speedups={"lora_in_activation": "off"}, **keys), GPU).counted.kept
    assert min(kept.values()) == kept[""]
    assert max(kept.values()) == kept["packed_execution"]
    assert all(kept[name] > kept[""] for name in ("gated_activation_kernel", "rms_norm_kernel", "fused_lora"))
