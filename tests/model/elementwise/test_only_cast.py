"""Promise: a kernel rounds what it writes only where whoever takes it would have done so, and the values are the same."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dynotune.model import elementwise
from dynotune.model.elementwise.only_cast import let_round
from tests.model.elementwise.stand_ins import stand_ins
from tests.model.lora.adapted import IDS, largest_gap, loss_and_gradients
from tests.tiny import tiny_model

LOW = torch.bfloat16
NORM, ROTARY = "RMSNorm", "rotary embedding"


def engaged(model: Any) -> Any:
    return elementwise.install(model, LOW, (NORM, ROTARY), stand_ins())


def rounded(model: Any, kind: str) -> list[str]:
    return let_round(model, engaged_kind(model, kind), LOW)


def engaged_kind(model: Any, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = elementwise.install(model, LOW, (kind,), stand_ins()).fused[kind]
    return found


OF_A_LAYER = ["input_layernorm", "post_attention_layernorm"]


@pytest.mark.parametrize(
    ("kind", "norms"),
    [
        ("llama", OF_A_LAYER),
        ("qwen2", OF_A_LAYER),
        ("phi3", OF_A_LAYER),
        ("qwen3", OF_A_LAYER),  # norms of heads are read by the rotary function
        ("gemma2", ["input_layernorm", "pre_feedforward_layernorm"]),  # the other two are added to the stream
        ("mixtral", ["input_layernorm"]),  # the other one's result is what experts are chosen for
        ("olmo2", []),  # norms what a block gives
    ],
)
def test_norms_whose_results_go_into_products_alone(kind: str, norms: list[str]) -> None:
    model = tiny_model(kind)
    found = rounded(model, NORM)
    assert sorted(found) == sorted(f"model.layers.{i}.{name}" for i in range(2) for name in norms)
    assert "model.norm" not in found, "its result leaves the decoder"


def test_rotated_heads_go_into_attention_alone() -> None:
    model = tiny_model("llama")
    assert rounded(model, ROTARY) == [f"model.layers.{i}.self_attn" for i in range(2)]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gemma2", "phi3", "mixtral"])
def test_the_forward_pass_has_the_same_bits_and_gradients_are_as_near(kind: str) -> None:
    model = tiny_model(kind).train()
    _, exact = loss_and_gradients(model)
    loss, plain = loss_and_gradients(model, autocast=True)
    standing = engaged(model)
    for of in (NORM, ROTARY):
        assert let_round(model, standing.fused[of], LOW)
    found_loss, found = loss_and_gradients(model, autocast=True)
    assert torch.equal(found_loss, loss)
    assert largest_gap(found, exact) < 1.5 * largest_gap(plain, exact)


def test_without_autocast_nothing_is_rounded() -> None:
    model = tiny_model("llama").train()
    loss, right = loss_and_gradients(model)
    standing = engaged(model)
    for of in (NORM, ROTARY):
        let_round(model, standing.fused[of], LOW)
    found_loss, found = loss_and_gradients(model)
    assert torch.allclose(found_loss, loss, rtol=1e-6)
    assert largest_gap(found, right) < 1e-5


class Looks(nn.Module):
    """Attention whose input somebody else uses, too."""

    def __init__(self, inner: nn.Module, how: Any) -> None:
        super().__init__()
        self.inner, self.how = inner, how

    def forward(self, hidden_states: Tensor, **more: Any) -> Any:
        self.how(hidden_states)
        return self.inner(hidden_states=hidden_states, **more)


@pytest.mark.parametrize(
    ("how", "is_rounded"),
    [
        (lambda x: x.shape, True),
        (lambda x: x[:, :1].transpose(0, 1), True),
        (lambda x: x.clone().to(LOW), True),
        (lambda x: x * 2, False),
        (lambda x: x.clone()[..., 0].sum(), False),
        (lambda x: x.to(torch.float64), False),
        (lambda x: x.view(-1).add_(0.0), False),
        (lambda x: torch.cat([x, x]), False),
    ],
    ids=["asks its shape", "a view", "a rounded copy", "product", "sum of a copy", "in float64", "in place", "cat"],
)
def test_whoever_else_sees_a_result_gets_it_as_it_is(how: Any, is_rounded: bool) -> None:
    model: Any = tiny_model("llama")
    model.model.layers[0].self_attn = Looks(model.model.layers[0].self_attn, how)
    assert ("model.layers.0.input_layernorm" in rounded(model, NORM)) == is_rounded


def test_a_model_that_drops_out_or_has_low_weights_or_takes_no_tokens_is_left_alone() -> None:
    drops: Any = tiny_model("llama")
    drops.model.layers[0].mlp.add_module("extra", nn.Dropout(0.1))
    assert rounded(drops, NORM) == []
    jitters: Any = tiny_model("mixtral")
    jitters.config.router_jitter_noise = 0.1
    assert rounded(jitters, NORM) == []
    assert rounded(tiny_model("llama").to(LOW), NORM) == []
    model = tiny_model("llama")
    standing = engaged_kind(model, NORM)
    model.model.forward = lambda **_: (_ for _ in ()).throw(AttributeError("no pixels"))
    assert let_round(model, standing, LOW) == []
    assert all(one.low is None and one.seen is None for one in standing.values())


def test_looking_changes_nothing() -> None:
    model = tiny_model("qwen2").train()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    state = torch.random.get_rng_state()
    standing = engaged_kind(model, NORM)
    let_round(model, standing, LOW)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert model(input_ids=IDS).logits.isfinite().all()
