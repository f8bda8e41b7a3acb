"""Promise: `dynotune plan` refuses what the run would, and says what this machine lacks, before anything is loaded."""

from typing import Any

import pytest

from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.model.activations.layers import checkpoint_layers
from dynotune.model.arguments import check_arguments
from tests.tiny import tiny_model


@pytest.mark.parametrize("kwargs", [{"foo": 1}, {"use_reentrant": True, "preserve": False}])
def test_arguments_that_checkpointing_does_not_know_are_refused_alike(kwargs: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="gradient_checkpointing_kwargs") as planned:
        check_arguments(SFTConfig(gradient_checkpointing=True, gradient_checkpointing_kwargs=kwargs))
    with pytest.raises(ConfigError) as run:
        checkpoint_layers(tiny_model(), kwargs)
    assert str(planned.value) == str(run.value)
    check_arguments(SFTConfig(gradient_checkpointing=False, gradient_checkpointing_kwargs=kwargs))  # they do nothing


@pytest.mark.parametrize("kwargs", [{}, {"use_reentrant": True}, {"preserve_rng_state": False}])
def test_those_that_it_knows_are_not(kwargs: dict[str, Any]) -> None:
    assert check_arguments(SFTConfig(gradient_checkpointing=True, gradient_checkpointing_kwargs=kwargs)) == []


def test_an_attention_that_transformers_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"attn_implementation: sdpaa.*There are: .*sdpa"):
        check_arguments(SFTConfig(attn_implementation="sdpaa"))
    for known in ("eager", "sdpa", "flash_attention_2", "flex_attention", None):
        assert check_arguments(SFTConfig(attn_implementation=known)) == []


def test_kernels_of_the_hub_need_a_package_and_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.utils import import_utils

    config = SFTConfig(attn_implementation="kernels-community/flash-attn")
    monkeypatch.setattr(import_utils, "is_kernels_available", lambda: False)
    [note] = check_arguments(config)
    assert "`kernels`" in note
    monkeypatch.setattr(import_utils, "is_kernels_available", lambda: True)
    assert check_arguments(config) == []
