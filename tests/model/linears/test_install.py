"""Promise: trained linears are computed together as a model calls them, as autocast would; and all can be undone."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dynotune.model.linears import install
from tests.model.lora.adapted import IDS, adapted_model, gap, largest_gap, loss_and_gradients
from tests.tiny import tiny_model

LOW = torch.bfloat16
THREE, TWO = "2 groups of 3 in one", "2 groups of 2 in one"


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("llama", f"14 of 14 modules ({THREE}, {TWO})"),
        ("qwen2", f"14 of 14 modules ({THREE}, {TWO})"),
        ("gemma2", f"14 of 14 modules ({THREE}, {TWO})"),
        ("phi3", "8 of 8 modules"),  # one product for query, key and value already
        ("mixtral", f"8 of 8 modules ({THREE})"),  # experts are no linears
    ],
)
def test_gradients_are_as_near_to_float32_as_autocasts(kind: str, line: str) -> None:
    model = tiny_model(kind).train()
    _, exact = loss_and_gradients(model)
    loss, plain = loss_and_gradients(model, autocast=True)
    engaged = install(model, LOW)
    assert engaged.lines() == [f"fused linears: {line}"]
    found_loss, found = loss_and_gradients(model, autocast=True)
    assert torch.equal(found_loss, loss), "the forward pass has the same products of the same numbers"
    assert largest_gap(found, exact) < 1.5 * largest_gap(plain, exact)
    assert engaged.aside.calls == 0
    assert not any(shared.unclaimed or shared.waiting for shared in engaged.passes.shared)
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in model.parameters())
    engaged.uninstall()
    engaged.uninstall()
    assert torch.equal(loss_and_gradients(model, autocast=True)[0], loss)
    assert not any("forward" in module.__dict__ for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_gradients_of_two_micro_batches_add_up() -> None:
    model = tiny_model("qwen2").train()
    engaged = install(model, LOW)
    first, second = (loss_and_gradients(model, ids, autocast=True)[1] for ids in (IDS, IDS.flip(1)))
    model.zero_grad()
    for ids in (IDS, IDS.flip(1)):
        with torch.autocast("cpu", LOW):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
    for name, p in model.named_parameters():
        if p.grad is not None:
            assert gap(p.grad, first[name] + second[name]) < 1e-6
    assert engaged.aside.calls == 0


def test_layers_that_are_computed_again_give_the_same() -> None:
    model: Any = tiny_model("llama").train()
    install(model, LOW)
    right = loss_and_gradients(model, autocast=True)
    for layer in model.model.layers:
        own = layer.forward
        layer.forward = lambda *args, own=own, **more: checkpoint(own, *args, use_reentrant=False, **more)
    found = loss_and_gradients(model, autocast=True)
    assert torch.equal(found[0], right[0])
    assert largest_gap(found[1], right[1]) == 0


def test_a_linear_called_alone_or_with_another_input_is_computed_by_itself() -> None:
    model: Any = tiny_model("llama").train()
    engaged = install(model, LOW)
    attention = model.model.layers[0].self_attn
    x = torch.randn(3, attention.q_proj.in_features)
    with torch.autocast("cpu", LOW):
        for module in (attention.k_proj, attention.q_proj):
            own = nn.Linear.forward(module, x)
            assert torch.equal(module(x), own)
    attention.k_proj.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    loss, gradients = loss_and_gradients(model, autocast=True)
    engaged.uninstall()
    own_loss, own_gradients = loss_and_gradients(model, autocast=True)
    assert torch.equal(loss, own_loss)
    assert largest_gap(gradients, own_gradients) < 0.05


def test_where_nothing_is_cast_the_modules_own_forward_answers() -> None:
    model = tiny_model("llama").train()
    right = loss_and_gradients(model)
    engaged = install(model, LOW)
    found = loss_and_gradients(model)  # without autocast
    assert torch.equal(found[0], right[0])
    assert largest_gap(found[1], right[1]) == 0
    assert engaged.aside.calls == 14


def test_who_is_left_out_is_said() -> None:
    model: Any = tiny_model("qwen2")
    layers = model.model.layers
    layers[0].mlp.gate_proj.weight.requires_grad_(False)
    layers[0].mlp.up_proj.to(torch.float64)
    layers[1].mlp.down_proj.forward = lambda x: x
    layers[1].self_attn.q_proj.bias.data = layers[1].self_attn.q_proj.bias.data.to(LOW)
    engaged = install(model, LOW)
    said = "\n".join(engaged.lines())
    assert "10 of 14 modules" in said
    for why in (
        "not trained",
        "float64 and products are in bfloat16",
        "replaced by someone else",
        "its bias is bfloat16",
    ):
        assert why in said
    assert model.lm_head not in [linear.module for linear in engaged.linears.values()]


def test_adapters_and_what_is_below_them_are_not_touched() -> None:
    model = adapted_model("llama")
    engaged = install(model, LOW)
    names = [name for name in engaged.linears if "base_layer" in name]
    assert not names, "their weights are frozen"
    engaged.uninstall()


def test_a_model_that_takes_no_tokens_is_computed_one_by_one() -> None:
    model: Any = tiny_model("llama").train()
    loss, _ = loss_and_gradients(model, autocast=True)
    own = type(model.model).forward
    model.model.forward = lambda *args, **more: (_ for _ in ()).throw(ValueError("pixels")) if not args else own(*args)
    engaged = install(model, LOW)
    del model.model.forward
    assert engaged.lines()[1].startswith("trained linears of one input are computed one by one: ValueError: pixels")
    assert torch.equal(loss_and_gradients(model, autocast=True)[0], loss)
    assert engaged.aside.calls == 0


def test_without_gradients_or_under_another_autocast_the_modules_own_forward_answers() -> None:
    model: Any = tiny_model("llama").train()
    engaged = install(model, LOW)
    linear = model.model.layers[0].mlp.down_proj
    x = torch.randn(3, linear.in_features)
    with torch.no_grad(), torch.autocast("cpu", LOW):
        assert linear(x).dtype == LOW
    assert engaged.aside.calls == 0, "nothing was left to be done"
    with torch.autocast("cpu", torch.float16):
        assert linear(x).dtype == linear(x.to(LOW)).dtype == torch.float16
    assert engaged.aside.calls == 2
    with pytest.raises(RuntimeError, match="dtype"):
        linear(x.to(LOW))  # somebody forgot autocast
