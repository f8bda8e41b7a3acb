"""Promise: a kernel is compared once for modules that compute the same, and anew for each that may compute otherwise."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dynotune.model.elementwise import install, norm
from dynotune.model.elementwise.alike import likeness
from tests.model.elementwise.stand_ins import stand_ins
from tests.tiny import tiny_model


class Norm(nn.Module):
    """As Llama's, with a switch that it reads."""

    def __init__(self, eps: float = 1e-6, doubled: bool = False, more: Any = None) -> None:
        super().__init__()
        self.weight, self.eps, self.doubled, self.more = nn.Parameter(torch.ones(16)), eps, doubled, more

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        found = self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)
        return 2 * found if self.doubled else found


class Wide(Norm):
    pass


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda module, inputs, output: 2 * output)
    return module


def patched(module: nn.Module) -> nn.Module:
    module.forward = lambda x: 2 * x  # type: ignore[method-assign]
    return module


def buffered(module: nn.Module) -> nn.Module:
    module.register_buffer("scale", torch.ones(1))
    return module


def test_the_same_class_with_the_same_attributes_is_alike_whatever_the_weights_are() -> None:
    one, other = Norm(), Norm()
    nn.init.normal_(other.weight)
    assert likeness(one) == likeness(other) is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Norm(eps=1e-5),
        lambda: Norm(doubled=True),
        lambda: Norm(more=[1]),
        lambda: Wide(),
        lambda: Norm().bfloat16(),
        lambda: Norm().eval(),
        lambda: frozen(Norm()),
        lambda: hooked(Norm()),
        lambda: patched(Norm()),
        lambda: buffered(Norm()),
        lambda: nn.Sequential(Norm()),
    ],
)
def test_whatever_may_make_it_compute_another_thing_is_a_likeness_of_its_own(make: Callable[[], nn.Module]) -> None:
    assert likeness(make()) != likeness(Norm())


def test_objects_are_the_same_only_where_they_are_one() -> None:
    shared = object()
    assert likeness(Norm(more=shared)) == likeness(Norm(more=shared))
    assert likeness(Norm(more={})) != likeness(Norm(more={}))
    assert likeness(Norm(more=1)) != likeness(Norm(more=True))


def test_children_count_but_for_those_that_are_named() -> None:
    def made(eps: float) -> nn.Module:
        return nn.ModuleDict({"a": Norm(), "b": Norm(eps)})

    assert likeness(made(1e-6)) == likeness(made(1e-6)) != likeness(made(1e-5))
    assert likeness(made(1e-6), but=("b",)) == likeness(made(1e-5), but=("b",))
    assert likeness(nn.ModuleDict({"a": hooked(Norm())})) is None


def test_the_norms_of_a_model_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five norms of one class and size; compared one by one the kernel would be called five times as often."""
    seen: list[Any] = []
    why = norm.why_different
    monkeypatch.setattr(norm, "why_different", lambda *given: seen.append(1) or why(*given))
    model = tiny_model("llama")
    engaged = install(model, torch.float32, ("RMSNorm",), stand_ins())
    assert len(engaged.fused["RMSNorm"]) == 5
    assert len(seen) == 1
    assert not engaged.others["RMSNorm"]


def test_one_norm_of_another_kind_among_them_is_found() -> None:
    """A control: the same class, and one of them doubles what it gives."""
    model = nn.Module()
    model.norms = nn.ModuleList([Norm(), Norm(), Norm(doubled=True), Norm()])
    engaged = install(model, torch.float32, ("RMSNorm",), stand_ins())
    assert set(engaged.fused["RMSNorm"]) == {"norms.0", "norms.1", "norms.3"}


def test_a_model_that_differs_in_one_layer_keeps_that_layer() -> None:
    """A control: one activation of another kind among gated feed-forwards of one class."""
    model = tiny_model("llama")
    layer: Any = model.model.layers[1].mlp
    layer.act_fn = nn.Sigmoid()
    engaged = install(model, torch.float32, ("gated activation",), stand_ins())
    assert set(engaged.fused["gated activation"]) == {"model.layers.0.mlp"}
    assert set(engaged.others["gated activation"]) == {"model.layers.1.mlp"}


class Learned(nn.Module):
    """Swish with a slope that is trained."""

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(beta))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.beta * x)


def test_an_activation_that_is_trained_keeps_its_module() -> None:
    """A control: a slope of 1 is SiLU as long as nobody trains it, and one layer says nothing of another one's slope."""
    model = tiny_model("llama")
    for layer, beta in zip(model.model.layers, (1.0, 3.0), strict=True):
        layer.mlp.act_fn = Learned(beta)
    engaged = install(model, torch.float32, ("gated activation",), stand_ins())
    assert not engaged.fused["gated activation"]
    assert len(engaged.others["gated activation"]) == 2
