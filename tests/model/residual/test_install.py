"""Promise: a norm computes the sum before it where that is seen to be so, the results stay, and all can be undone."""

import copy
from contextlib import nullcontext
from functools import wraps
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dynotune.measure.traces.places import Ranges
from dynotune.model import elementwise, residual
from tests.model.elementwise.stand_ins import added_and_normed, stand_ins
from tests.model.lora.adapted import IDS, gap, largest_gap, loss_and_gradients
from tests.tiny import tiny_model


def installed(kind: str, **kernels: Any) -> tuple[Any, Any, elementwise.Engaged, residual.Engaged]:
    """A model, what answers its sums as a function that counts, and what was put in."""
    model: Any = tiny_model(kind).train()
    found = stand_ins(**kernels)
    norms = elementwise.install(model, torch.float32, kernels=found)
    sums = residual.install(model, torch.float32)
    found.sum_rms_norm.calls = 0
    return model, found.sum_rms_norm, norms, sums


@pytest.mark.parametrize(
    ("kind", "n"),
    [("llama", 4), ("mistral", 4), ("qwen2", 4), ("qwen3", 4), ("phi3", 4), ("gemma2", 4), ("gemma3_text", 4),
     ("mixtral", 4), ("olmo2", 1)],  # OLMo 2 norms branches, and its last sum alone goes into a norm
)  # fmt: skip
@pytest.mark.parametrize("traced", [False, True])
def test_results_stay_and_each_sum_is_asked_of_its_norm(kind: str, n: int, traced: bool) -> None:
    own = loss_and_gradients(tiny_model(kind).train())
    model, function, norms, sums = installed(kind)
    assert len(sums.norms) == n
    assert sums.lines() == [f"sums in the RMSNorm behind them: {n} of {n} norms"]
    # A traced step has ranges around the norms, which must see the kernel where the proof looks for it.
    around = Ranges({name: model.get_submodule(name) for name in sums.norms}, str) if traced else nullcontext()
    with around:
        found = loss_and_gradients(model)
    assert function.calls == n
    assert torch.equal(found[0], own[0])
    assert largest_gap(found[1], own[1]) < 1e-5
    assert norms.calls_to_own == sums.aside.calls == 0
    assert not any(first.waiting for first in sums.norms.values())
    with torch.no_grad():
        model(input_ids=IDS)
    assert function.calls == 2 * n, "evaluations have it too"
    sums.uninstall()
    sums.uninstall()
    assert torch.equal(loss_and_gradients(model)[0], own[0])
    assert function.calls == 2 * n
    norms.uninstall()
    assert not any("forward" in module.__dict__ or "_dynotune_sums" in module.__dict__ for module in model.modules())


def test_where_the_norms_kernel_is_out_of_the_way_sums_are_the_layers_own() -> None:
    model, function, norms, sums = installed("llama")
    own = loss_and_gradients(model)
    calls = function.calls
    for module, _ in norms.forwards:
        module.__dict__.pop("forward", None)
    found = loss_and_gradients(model)
    assert function.calls == calls
    assert sums.aside.calls == len(sums.norms)
    assert torch.equal(found[0], own[0])


def test_a_sum_of_other_dtypes_is_the_layers_own() -> None:
    model, function, _, sums = installed("llama")
    with torch.autocast("cpu", torch.bfloat16):
        model(input_ids=IDS)
    assert function.calls == 0
    assert sums.aside.calls == len(sums.norms)


def test_a_norm_of_a_sum_that_was_changed_meanwhile_is_computed_anew() -> None:
    model, _, _, sums = installed("llama")
    layer = model.model.layers[0]
    norm = layer.post_attention_layernorm
    first = next(iter(sums.norms.values()))
    a, b = torch.randn(2, 3, layer.hidden_size)
    total = first(a, b)
    assert torch.equal(total, a + b)
    assert torch.equal(norm(total), norm(total.clone())), "the same norm, which waited"
    total = first(a, b)
    total.add_(1)
    assert not torch.allclose(norm(total), norm(a + b))
    total = first(a, b)
    assert torch.equal(norm(total.clone()), norm(a + b)), "another tensor"
    with torch.no_grad():
        total = first(a, b)
    assert norm(total).requires_grad, "a norm without gradient does not wait for one with"
    assert sums.aside.whys == {"a sum reached its norm as another tensor, or not at all": 3}
    assert first.waiting is None


def test_a_copy_of_the_model_has_its_own_and_no_results_of_a_pass() -> None:
    model, function, _, sums = installed("llama")
    first = next(iter(sums.norms.values()))
    first(*torch.randn(2, 3, 32).requires_grad_())
    twin = copy.deepcopy(model)
    calls = function.calls
    own, found = loss_and_gradients(model), loss_and_gradients(twin)
    assert function.calls == calls + 4, "the copy counts for itself"
    assert torch.equal(own[0], found[0])
    first(*torch.randn(2, 3, 32))
    sums.uninstall()
    assert first.waiting is None
    assert isinstance(twin.model.layers[0].forward.layer, type(model.model.layers[0]))
    assert twin.model.layers[0].forward.layer is twin.model.layers[0]


def scaled(module: Any, args: Any, output: Tensor) -> Tensor:
    return output * 1.5


def moved(module: Any, args: Any) -> tuple[Tensor, ...]:
    return (args[0] + 0.1, *args[1:])


HOOKS = {
    "forward": lambda module: module.register_forward_hook(scaled),
    "forward pre": lambda module: module.register_forward_pre_hook(moved),
    "backward": lambda module: module.register_full_backward_hook(lambda m, given, out: (given[0] * 0.5,)),
    "backward pre": lambda module: module.register_full_backward_pre_hook(lambda m, out: (out[0] * 0.5,)),
}


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_of_a_norm_see_its_own_call_alone(kind: str, before: bool) -> None:
    own: Any = tiny_model("llama").train()
    HOOKS[kind](own.model.layers[0].post_attention_layernorm)
    right = loss_and_gradients(own)
    model: Any = tiny_model("llama").train()
    if before:
        HOOKS[kind](model.model.layers[0].post_attention_layernorm)
    elementwise.install(model, torch.float32, kernels=stand_ins())
    residual.install(model, torch.float32)
    if not before:
        HOOKS[kind](model.model.layers[0].post_attention_layernorm)
    found = loss_and_gradients(model)
    assert gap(found[0], right[0]) < 1e-6
    assert found[1].keys() == right[1].keys()
    assert largest_gap(found[1], right[1]) < 1e-5
    plain = loss_and_gradients(tiny_model("llama").train())
    assert largest_gap(right[1], plain[1]) > 1e-3, "the control: the hook does something"


def test_someone_elses_wrapper_around_a_norm_is_not_called_with_a_sum() -> None:
    model, _, _, sums = installed("llama")
    norm = model.model.layers[0].post_attention_layernorm
    inner = norm.forward

    @wraps(inner, updated=())
    def larger(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs) * 1.5

    norm.forward = larger
    own: Any = tiny_model("llama").train()
    own.model.layers[0].post_attention_layernorm.register_forward_hook(scaled)
    right, found = loss_and_gradients(own), loss_and_gradients(model)
    assert gap(found[0], right[0]) < 1e-6
    assert sums.aside.calls == 1


@pytest.mark.parametrize("some", [slice(None), slice(1, None), slice(0, 1)], ids=["all", "the last", "the first"])
def test_layers_that_transformers_computes_again_are_its_own(some: slice) -> None:
    """Also where only some are, behind or before those with sums, and though it was switched on while sums stand there."""
    model, _, _, _ = installed("llama")
    right = loss_and_gradients(model)
    again: list[str] = []
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for i, layer in enumerate(model.model.layers):
        layer.gradient_checkpointing = i in range(len(model.model.layers))[some]
        layer.mlp.register_forward_pre_hook(lambda *_, i=i: again.append(i))
    found = loss_and_gradients(model)
    assert torch.equal(found[0], right[0])
    assert largest_gap(found[1], right[1]) < 1e-5
    for i, layer in enumerate(model.model.layers):
        assert again.count(i) == 1 + layer.gradient_checkpointing, "it is computed again, and once"


def test_inference_mode_adds_as_the_layer_does() -> None:
    model, function, _, sums = installed("llama")
    with torch.inference_mode():
        found = model(input_ids=IDS).logits
    assert function.calls == 0
    sums.uninstall()
    with torch.inference_mode():
        assert torch.equal(model(input_ids=IDS).logits, found)


@pytest.mark.parametrize("before", [True, False])
def test_a_class_that_someone_patches_is_called_as_patched(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer_class = type(tiny_model("llama").model.layers[0])
    original = layer_class.forward

    @wraps(original)
    def patched(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) * 2

    if before:
        monkeypatch.setattr(layer_class, "forward", patched)
        right = loss_and_gradients(tiny_model("llama").train())
    model, function, _, sums = installed("llama")
    if not before:
        monkeypatch.setattr(layer_class, "forward", patched)
        right = loss_and_gradients(tiny_model("llama").train())
    else:
        assert any("forward is wrapped" in line for line in sums.lines())
    found = loss_and_gradients(model)
    assert torch.equal(found[0], right[0])
    assert function.calls == 0


def test_a_norm_that_is_given_something_else_besides_gets_it() -> None:
    model, _, _, sums = installed("llama")
    norm = model.model.norm
    x = torch.randn(2, 32)
    with pytest.raises(TypeError):  # its own forward takes one argument, and is asked
        norm(x, x)
    assert not any(first.waiting for first in sums.norms.values())


def wrong(*given: Any) -> tuple[Tensor, Tensor]:
    total, normed = added_and_normed(*given)
    return total, normed * 1.001


def test_a_kernel_that_is_wrong_is_not_put_in() -> None:
    model, function, _, sums = installed("llama", sum_rms_norm=wrong)
    own = loss_and_gradients(tiny_model("llama").train())
    assert not sums.norms
    assert any("computes something else" in line for line in sums.lines())
    assert torch.equal(loss_and_gradients(model)[0], own[0])
    assert function.calls == 0


class Twice(nn.Module):
    """A layer of whose sums one goes into two norms, and whose other is changed before its norm sees it."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.a, self.b, self.c = layer.input_layernorm, layer.post_attention_layernorm, nn.Linear(8, 8)

    def forward(self, hidden_states: Tensor, **_: Any) -> Tensor:
        branch = torch.sin(hidden_states)
        total = hidden_states + branch
        x = self.a(total) * self.b(total)
        x = total + x
        x.mul_(2)
        return x


def test_a_sum_that_two_norms_take_or_that_is_changed_is_left_alone() -> None:
    model: Any = tiny_model("llama").train()
    layers = model.model.layers
    for i, layer in enumerate(layers):
        layers[i] = Twice(layer)
    own = loss_and_gradients(model)
    elementwise.install(model, torch.float32, kernels=stand_ins())
    sums = residual.install(model, torch.float32)
    assert not sums.norms
    assert torch.equal(loss_and_gradients(model)[0], own[0])


def test_a_layer_whose_forward_is_someone_elses_is_left_alone() -> None:
    model: Any = tiny_model("llama").train()
    elementwise.install(model, torch.float32, kernels=stand_ins())
    first = model.model.layers[0]
    own = first.forward
    first.forward = lambda *args, **more: own(*args, **more)
    sums = residual.install(model, torch.float32)
    assert set(sums.norms) == {"model.layers.1.post_attention_layernorm", "model.norm"}
    assert "its layer's forward was replaced by someone else" in sums.lines()[1]
