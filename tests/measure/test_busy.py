"""Promise: micro-batches grow where layers do little, never below what a 7B takes; graphs end where launches are hidden."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from dynotune.estimate.fastest import most_useful
from dynotune.measure.busy import LARGEST, UNKNOWN, busy_tokens, useful_tokens
from dynotune.plan.ladder import round_down, round_up
from dynotune.plan.summary import DEFAULT_TOKENS
from tests.tiny import tiny_model


def shape(hidden: int, inner: int, layers: int, lora: bool = False) -> Any:
    config = AutoConfig.for_model(
        "llama", hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=hidden // 64, num_key_value_heads=hidden // 64, vocab_size=1000,
    )  # fmt: skip
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        return get_peft_model(model, LoraConfig(r=8, target_modules="all-linear")) if lora else model


def test_work_of_a_layer_decides_not_their_number_nor_the_head() -> None:
    few, many = shape(1024, 2816, 2), shape(1024, 2816, 24)
    assert busy_tokens(few) == busy_tokens(many)
    weights = 4 * 1024**2 + 3 * 1024 * 2816
    assert busy_tokens(few) == round_down(int(3.9e12 / (6 * weights)))


def test_frozen_weights_do_two_thirds_of_the_work() -> None:
    full, lora = shape(1024, 2816, 2), shape(1024, 2816, 2, lora=True)
    assert 1.35 < busy_tokens(lora) / busy_tokens(full) < 1.5


def test_a_large_model_keeps_the_default_and_a_tiny_one_has_an_end() -> None:
    large = shape(4096, 14336, 2, lora=True)
    assert busy_tokens(large) < DEFAULT_TOKENS == useful_tokens(large)
    assert busy_tokens(tiny_model("llama")) == LARGEST == useful_tokens(tiny_model("llama"))


def test_a_model_that_cannot_be_counted_keeps_what_all_had() -> None:
    model = tiny_model("llama")
    model.get_output_embeddings = lambda: None  # type: ignore[method-assign]
    assert busy_tokens(model) == UNKNOWN
    assert useful_tokens(model) == DEFAULT_TOKENS


class OnePlan:
    """Steps of so many tokens."""

    def __init__(self, tokens: int, world: int = 1) -> None:
        self.world, self.longest, self.tokens = world, 100, tokens


@given(st.integers(64, 400_000), st.sampled_from([DEFAULT_TOKENS, 43_520, LARGEST]), st.sampled_from([1, 2, 8]))
def test_no_micro_batch_is_larger_than_a_step_or_than_is_of_use(tokens: int, useful: int, world: int) -> None:
    plan: Any = OnePlan(tokens, world)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dynotune.estimate.fastest.largest_step", lambda plan: -(-plan.tokens // plan.world))
        most = most_useful(plan, useful)
    assert most == round_up(most) <= useful
    share = -(-tokens // world) + (100 if world > 1 else 0)
    assert most == min(useful, round_up(share))
