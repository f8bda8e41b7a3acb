"""Promise: `disable_dropout` switches off all that a model drops, says what that was, and gives it back."""

from contextlib import ExitStack

import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from dynotune.model.dropout import random_parts, without_dropout
from tests.tiny import tiny_model


def test_nothing_is_dropped_and_all_comes_back() -> None:
    model = get_peft_model(
        tiny_model(attention_dropout=0.2), LoraConfig(r=2, lora_dropout=0.5, target_modules=["q_proj"])
    )
    before = random_parts(model)
    assert before == ["attention_dropout: 0.2", "lora_dropout: 0.5"]
    ids = torch.arange(1, 9)[None]
    model.train()
    assert not torch.equal(model(input_ids=ids).logits, model(input_ids=ids).logits)
    with ExitStack() as undo:
        [line] = without_dropout(model, undo)
        assert all(part in line for part in before)
        assert random_parts(model) == []
        assert torch.equal(model(input_ids=ids).logits, model(input_ids=ids).logits)
    assert random_parts(model) == before


def test_a_model_without_dropout_is_not_spoken_of() -> None:
    with ExitStack() as undo:
        assert without_dropout(tiny_model(), undo) == []


def test_numbers_that_only_sound_like_it_are_left() -> None:
    class Router(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router_jitter_noise, self.drops, self.dropped = 0.01, True, 0

    router = Router()
    assert random_parts(router) == ["router_jitter_noise: 0.01"]
    with ExitStack() as undo:
        assert without_dropout(router, undo) == []
        assert (router.router_jitter_noise, router.drops) == (0.01, True)
