"""Promise: looking at what a micro-batch takes of memory changes nothing of the run."""

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model

from dynotune import SFTConfig
from dynotune.model.precision import Precision
from dynotune.plan.capacity import SPARED
from dynotune.train.device import autocast_of
from dynotune.train.execution import room_of
from tests.tiny import tiny_model

PRECISION = Precision(torch.float32, False)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_it_leaves_model_and_random_numbers_as_they_were(checkpointing: bool) -> None:
    model = get_peft_model(tiny_model(), LoraConfig(r=4, lora_dropout=0.1, target_modules="all-linear"))
    if checkpointing:
        model.base_model.model.gradient_checkpointing_enable({"use_reentrant": False})
    model.eval()
    before, weights = torch.get_rng_state(), copy.deepcopy(model.state_dict())
    flags = [getattr(m, "gradient_checkpointing", None) for m in model.modules()]
    implementation = model.config._attn_implementation
    room = room_of(model, SFTConfig(), PRECISION, autocast_of(PRECISION, torch.device("cpu")))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not model.training
    assert model.config._attn_implementation == implementation
    assert [getattr(m, "gradient_checkpointing", None) for m in model.modules()] == flags
    assert room.needed(1024) > room.needed(512) > 0


def test_checkpointing_takes_less_and_more_memory_holds_more_tokens() -> None:
    autocast = autocast_of(PRECISION, torch.device("cpu"))
    # deep enough that the inputs of all layers and the whole of one are less than the whole of all
    model = tiny_model(num_hidden_layers=6)
    plain = room_of(model, SFTConfig(), PRECISION, autocast)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    again = room_of(model, SFTConfig(gradient_checkpointing=True), PRECISION, autocast)
    assert again.needed(2048) < plain.needed(2048)
    enough = int(plain.needed(2048) / (1 - SPARED)) + 1
    assert type(plain)(enough, plain.needed).tokens(16_384) >= 2048
    assert type(plain)(enough // 2, plain.needed).tokens(16_384) < 2048
