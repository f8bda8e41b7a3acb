"""Promise: layers computed again give the same bits, and the model is given back as it was."""

from typing import Any

import pytest
import torch

from dynotune.errors import ConfigError
from dynotune.model.activations.layers import are_checkpointed, checkpoint_layers
from tests.model.activations.passes import differ, model_of, pass_of, state_of


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", ["llama", "qwen3", "phi3"])
def test_the_same_bits_with_dropout_and_back_again(kind: str, lora: bool) -> None:
    model = model_of(kind, lora, dropout=0.2)
    right, before = pass_of(model, passes=2), state_of(model)
    again = checkpoint_layers(model, {})
    assert are_checkpointed(model)
    assert len(again.places) == 2
    assert differ(pass_of(model, passes=2), right) == []
    again.uninstall()
    again.uninstall()
    assert state_of(model) == before
    assert differ(pass_of(model, passes=2), right) == []


def test_layers_run_twice_in_training_and_once_in_evaluation() -> None:
    model = model_of("llama", False)
    calls: list[str] = []
    model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: calls.append("mlp"))
    again = checkpoint_layers(model, {})
    pass_of(model)
    assert len(calls) == 2
    model.eval()
    calls.clear()
    with torch.no_grad():
        model(input_ids=torch.ones(1, 4, dtype=torch.long))
    assert len(calls) == 1
    model.train()
    calls.clear()
    again.uninstall()
    pass_of(model)
    assert len(calls) == 1


def test_what_cannot_be_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = model_of("llama", False)
    before = state_of(model)
    with pytest.raises(ConfigError, match="gradient_checkpointing_kwargs"):
        checkpoint_layers(model, {"no_such_argument": 1})
    assert state_of(model) == before
    monkeypatch.setattr(type(model), "supports_gradient_checkpointing", False)
    with pytest.raises(ConfigError, match="does not support it"):
        checkpoint_layers(model, {})
    assert state_of(model) == before
