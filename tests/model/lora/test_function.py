"""Promise: one LoRA linear gives PEFT's output and gradients, whatever its shape, and nothing that is not asked for."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dynotune.model.lora import install
from dynotune.model.lora.function import LoraLinears, has_wide_products, scaled_product
from tests.model.lora.adapted import adapted_linear, gap


def run(module: nn.Module, x: Tensor, autocast: bool = False, seed: int = 3) -> dict[str, Tensor]:
    """Output and all gradients of one call, for a fixed gradient of the output."""
    module.zero_grad()
    x = x.clone().requires_grad_()
    torch.manual_seed(seed)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = module(x)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(9)).to(y.dtype))
    assert x.grad is not None
    return {"y": y.detach(), "x": x.grad, **{n: p.grad for n, p in module.named_parameters() if p.grad is not None}}


SHAPES = [(7, 24), (2, 3, 24), (1, 24), (2, 2, 3, 24), (24,)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "more", [{}, {"bias": False}, {"use_rslora": True}, {"r": 1}, {"r": 8}, {"r": 16, "lora_alpha": 3}]
)
def test_float32_is_pefts(shape: tuple[int, ...], more: dict[str, Any]) -> None:
    module = adapted_linear(**more)
    x = torch.randn(shape)
    theirs = run(module, x)
    engaged = install(module, torch.float32)
    ours = run(module, x)
    assert engaged.calls_to_peft == 0
    assert ours.keys() == theirs.keys()
    assert len(ours) == 4
    assert gap(ours["y"], theirs["y"]) < 1e-6
    assert max(gap(ours[k], theirs[k]) for k in ours) < 1e-5
    assert all(ours[k].dtype == theirs[k].dtype and ours[k].shape == theirs[k].shape for k in ours)


@pytest.mark.parametrize("shape", SHAPES[:2])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_bfloat16_is_as_near_to_float32_as_peft_under_autocast(shape: tuple[int, ...], dropout: float) -> None:
    module = adapted_linear(torch.bfloat16, lora_dropout=dropout)
    exact = adapted_linear(torch.float32, lora_dropout=dropout)
    exact.load_state_dict(module.state_dict())
    x = torch.randn(shape).bfloat16()
    dropped = F.dropout
    F.dropout = lambda x, p, training, inplace: (x.float() * mask).to(x.dtype) if training else x  # type: ignore[assignment]
    mask = (torch.rand(shape) > dropout) / (1 - dropout)
    try:
        reference, theirs = run(exact, x.float()), run(module, x, autocast=True)
        install(module, torch.bfloat16)
        ours, without = run(module, x, autocast=True), run(module, x)
    finally:
        F.dropout = dropped
    assert all(torch.equal(ours[k], without[k]) for k in ours), "autocast changes nothing"
    assert {k: v.dtype for k, v in ours.items()} == {k: v.dtype for k, v in theirs.items()}
    for k in ours:
        assert gap(ours[k], reference[k]) < max(1.5 * gap(theirs[k], reference[k]), 1e-6), k


def test_bfloat16_under_autocast_takes_a_float32_input() -> None:
    module = adapted_linear(torch.bfloat16)
    x = torch.randn(7, 24)
    theirs = run(module, x, autocast=True)
    engaged = install(module, torch.bfloat16)
    ours = run(module, x, autocast=True)
    assert engaged.calls_to_peft == 0
    assert ours["y"].dtype == torch.bfloat16
    assert ours["x"].dtype == torch.float32
    assert max(gap(ours[k], theirs[k]) for k in ours) < 2e-2


def test_dropout_draws_pefts_mask() -> None:
    module = adapted_linear(lora_dropout=0.4)
    x = torch.randn(50, 24)
    theirs = run(module, x)
    install(module, torch.float32)
    ours, other = run(module, x), run(module, x, seed=4)
    assert max(gap(ours[k], theirs[k]) for k in ours) < 1e-5
    assert gap(other["y"], theirs["y"]) > 1e-2, "another mask is another output"
    module.eval()
    assert torch.equal(module(x), module(x))


def test_a_wrong_scaling_is_caught() -> None:
    module = adapted_linear()
    x = torch.randn(7, 24)
    theirs = run(module, x)
    install(module, torch.float32)
    module.scaling["default"] *= 1.001
    ours = run(module, x)
    assert gap(ours["y"], theirs["y"]) > 1e-6
    assert all(gap(ours[k], theirs[k]) > 1e-5 for k in ours if k != "y")


def test_an_empty_micro_batch_has_zero_gradients() -> None:
    module = adapted_linear()
    install(module, torch.float32)
    ours = run(module, torch.zeros(0, 24))
    assert ours["y"].shape == (0, 40)
    assert all(not v.any() for v in ours.values())


def test_gradients_by_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    x, A, B = (draw(*s).requires_grad_() for s in ((6, 4), (2, 4), (3, 2)))
    W, b = draw(3, 4), draw(3)
    dropped = (x.detach() * (draw(6, 4) > 0)).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, A, B: LoraLinears.apply(x, None, None, 1.7, False, None, W, b, A, B, None)[0], (x, A, B)
    )
    assert torch.autograd.gradcheck(
        lambda x, d, A, B: LoraLinears.apply(x, d, None, 0.3, False, None, W, None, A, B, None)[0], (x, dropped, A, B)
    )


@given(
    tokens=st.integers(0, 9), inputs=st.integers(1, 7), outputs=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    has_bias=st.booleans(), has_dropout=st.booleans(), seed=st.integers(0, 99), data=st.data(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_any_group_is_its_formula(
    tokens: int, inputs: int, outputs: list[int], has_bias: bool, has_dropout: bool, seed: int, data: Any
) -> None:
    """Against autograd of the formula, in float64, for any number of linears, ranks and parts that need no gradient."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    ranks = [data.draw(st.integers(1, 4)) for _ in outputs]
    x, Ws = draw(tokens, inputs), [draw(o, inputs) for o in outputs]
    biases = [draw(o) if has_bias else None for o in outputs]
    dropped = x * (draw(tokens, inputs) > 0) if has_dropout else None
    trained = [x, *([] if dropped is None else [dropped]), *(draw(r, inputs) for r in ranks)]
    trained += [draw(o, r) for o, r in zip(outputs, ranks, strict=True)]
    n = len(outputs)
    As, Bs = trained[-2 * n : -n], trained[-n:]
    for part in trained:
        part.requires_grad_(data.draw(st.booleans()))
    asked = [part for part in trained if part.requires_grad]
    source = x if dropped is None else dropped
    theirs = [F.linear(x, W, b) + 1.3 * source @ A.t() @ B.t() for W, b, A, B in zip(Ws, biases, As, Bs, strict=True)]
    ours = LoraLinears.apply(x, dropped, None, 1.3, False, None, *Ws, *biases, *As, *Bs, *[None] * n)
    assert all(torch.allclose(a, b) for a, b in zip(ours, theirs, strict=True))
    if asked:
        gs = [draw(*y.shape) for y in theirs]
        pairs = [(a, b, g) for a, b, g in zip(ours, theirs, gs, strict=True) if b.requires_grad]
        found = torch.autograd.grad([p[0] for p in pairs], asked, [p[2] for p in pairs], allow_unused=True)
        expected = torch.autograd.grad([p[1] for p in pairs], asked, [p[2] for p in pairs], allow_unused=True)
        for a, b in zip(found, expected, strict=True):
            assert torch.allclose(a if a is not None else torch.zeros(()), b if b is not None else torch.zeros(()))


@pytest.mark.parametrize("frozen", [("x",), ("A",), ("B",), ("A", "B"), ("x", "A"), ("x", "B"), ("x", "A", "B")])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_only_what_is_asked_for_gets_a_gradient(frozen: tuple[str, ...], dropout: float) -> None:
    module = adapted_linear(lora_dropout=dropout)
    parts = {
        "x": torch.randn(5, 24).requires_grad_(),
        "A": module.lora_A["default"].weight,
        "B": module.lora_B["default"].weight,
    }

    def gradients() -> dict[str, Tensor]:
        for part in parts.values():
            part.grad = None
        torch.manual_seed(1)
        y = module(parts["x"])
        if y.requires_grad:
            y.square().sum().backward()
        return {k: v.grad for k, v in parts.items() if v.grad is not None}

    for name in frozen:
        parts[name].requires_grad_(False)
    theirs = gradients()
    install(module, torch.float32)
    ours = gradients()
    assert ours.keys() == theirs.keys() == parts.keys() - set(frozen)
    assert all(gap(ours[k], theirs[k]) < 1e-5 for k in ours)


def test_saved_tensors_are_not_written_to() -> None:
    module = adapted_linear()
    install(module, torch.float32)
    x = torch.randn(5, 24, requires_grad=True)
    y = module(x)
    first = torch.autograd.grad(y.square().sum(), [x, *module.parameters()][:1], retain_graph=True)[0]
    second = torch.autograd.grad(y.square().sum(), x)[0]
    assert torch.equal(first, second)


def test_weights_changed_before_the_backward_are_refused() -> None:
    module = adapted_linear(torch.bfloat16)
    install(module, torch.bfloat16)
    y = module(torch.randn(5, 24).bfloat16())
    with torch.no_grad():
        module.lora_B["default"].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_wide_products_are_tried() -> None:
    """The CPU has none; what stands in for them rounds once and keeps the scale."""
    assert not has_wide_products(torch.device("cpu"), torch.float32)
    left, right = torch.randn(3, 8).bfloat16(), torch.randn(8, 5).bfloat16()
    like = torch.full((3, 5), float("nan"))
    product = scaled_product(like, left, right, 0.5, has_wide_products(torch.device("cpu"), torch.bfloat16))
    same = scaled_product(like, left.float(), right.float(), 0.5, False)
    assert gap(same, 0.5 * left.float() @ right.float()) < 1e-6
    assert product.dtype == torch.float32
    assert gap(product, 0.5 * left.float() @ right.float()) < 5e-3
