"""Promise: what is advised where memory runs out can be done: it contradicts no other key of the configuration."""

from typing import Any

import pytest

from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.train.faults.advice import Circumstances, help_with
from dynotune.train.faults.shortage import Shortage, shortage_of


def advised(**keys: Any) -> list[str]:
    """About layers that are computed again."""
    shortage = shortage_of(RuntimeError("CUDA out of memory. Tried to allocate 1.00 GiB."))
    assert isinstance(shortage, Shortage)
    lines = help_with(Circumstances("backward", SFTConfig(**keys), packed=True), shortage)
    return [line for line in lines if "gradient_checkpointing: true" in line]


@pytest.mark.parametrize(
    ("keys", "instead"),
    [
        ({}, ""),
        ({"activation_memory": "none"}, "`activation_memory: none`"),
        ({"gradient_checkpointing": False}, "`gradient_checkpointing: false`"),
        ({"speedups": {"activation_full": "off"}}, "`speedups: {activation_full: off}`"),
    ],
)
def test_what_it_contradicts_is_taken_out(keys: dict[str, Any], instead: str) -> None:
    [line] = advised(**keys)
    assert line.startswith("`gradient_checkpointing: true`" + (f" in the place of {instead}" if instead else ""))
    if "speedups" in keys:
        notices = SFTConfig(**keys, gradient_checkpointing=True).notices
        assert any("wins over `gradient_checkpointing: true`" in notice for notice in notices)
    elif "activation_memory" in keys:
        with pytest.raises(ConfigError, match="contradict each other"):
            SFTConfig(**keys, gradient_checkpointing=True)


def test_who_has_it_is_not_advised_to() -> None:
    assert not advised(gradient_checkpointing=True)
