"""Promise: trained linears of one input give torch's outputs and gradients, and nothing that is not asked for."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dynotune.model.linears import function
from dynotune.model.linears.function import TrainedLinears, has_wide_sums, pays_together, summed_products
from tests.model.lora.adapted import gap

LOW = torch.bfloat16


def parts(outputs: tuple[int, ...], inputs: int, bias: bool, dtype: torch.dtype) -> list[Tensor | None]:
    torch.manual_seed(0)
    weights: list[Tensor | None] = [torch.randn(o, inputs).to(dtype).requires_grad_() for o in outputs]
    biases = [torch.randn(o).to(dtype).requires_grad_() if bias else None for o in outputs]
    return weights + biases


def run(call: Any, x: Tensor, given: list[Tensor | None], dtype: torch.dtype) -> list[Tensor]:
    """Outputs, and gradients of input, weights and biases."""
    x = x.clone().requires_grad_()
    leaves = [x, *(p for p in given if p is not None)]
    ys = call(x, given)
    generator = torch.Generator().manual_seed(9)
    cotangents = [torch.randn(y.shape, generator=generator).to(dtype).to(y.dtype) for y in ys]
    return [*(y.detach() for y in ys), *torch.autograd.grad(ys, leaves, cotangents)]


def ours(compute: torch.dtype, wide: bool = False) -> Any:
    return lambda x, given: TrainedLinears.apply(x, compute, wide, *given)  # type: ignore[no-untyped-call]


def torchs(dtype: torch.dtype | None = None) -> Any:
    """As torch has it; dtype: as autocast would have it in it."""

    def call(x: Tensor, given: list[Tensor | None]) -> list[Tensor]:
        n = len(given) // 2
        cast = [p if p is None or dtype is None else p.to(dtype) for p in given]
        return [F.linear(x if dtype is None else x.to(dtype), w, b) for w, b in zip(cast[:n], cast[n:], strict=True)]  # type: ignore[arg-type]

    return call


@pytest.fixture(params=[True, False], ids=["side by side", "one by one"])
def side_by_side(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "pays_together", lambda *_: request.param)


SHAPES = [(7, 24), (2, 3, 24), (1, 24), (24,)]


@pytest.mark.usefixtures("side_by_side")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("outputs", [(40,), (24, 8, 8), (64, 64)])
@pytest.mark.parametrize("bias", [True, False])
def test_float32_is_torchs(shape: tuple[int, ...], outputs: tuple[int, ...], bias: bool) -> None:
    given, x = parts(outputs, 24, bias, torch.float32), torch.randn(shape)
    found, right = run(ours(torch.float32), x, given, torch.float32), run(torchs(), x, given, torch.float32)
    for a, b in zip(found, right, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape  # noqa: PT018
        assert gap(a, b) < 1e-6


@pytest.mark.usefixtures("side_by_side")
@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 70),
    outputs=st.lists(st.sampled_from([8, 24, 64]), min_size=1, max_size=3).map(tuple),
    weights=st.sampled_from([torch.float32, LOW]),
    inputs=st.sampled_from([torch.float32, LOW]),
    bias=st.booleans(),
)
def test_low_precision_is_as_near_to_float64_as_autocast(
    tokens: int, outputs: tuple[int, ...], weights: torch.dtype, inputs: torch.dtype, bias: bool
) -> None:
    given, x = parts(outputs, 24, bias, weights), torch.randn(tokens, 24).to(inputs)
    exact_parts = [None if p is None else p.detach().double().requires_grad_() for p in given]
    exact = run(torchs(), x.double(), exact_parts, LOW)
    found, plain = run(ours(LOW), x, given, LOW), run(torchs(LOW), x, given, LOW)
    for a, b, right in zip(found, plain, exact, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape  # noqa: PT018
        assert gap(a, right) < 1.5 * gap(b, right) + 4e-3  # a rounding more, of one sum, where nothing is large


def test_what_is_not_asked_for_is_not_computed_and_nothing_saved_is_written_to() -> None:
    given, x = parts((24, 8, 8), 24, True, torch.float32), torch.randn(5, 24, requires_grad=True)
    for place in (1, 4):  # a weight and a bias
        given[place] = given[place].detach()  # type: ignore[union-attr]
    ys = TrainedLinears.apply(x, LOW, False, *given)  # type: ignore[no-untyped-call]
    kept = [p.detach().clone() for p in (x, *given) if p is not None]
    wanted = [x, *(p for p in given if p is not None and p.requires_grad)]
    gradients = torch.autograd.grad(ys, wanted, [torch.ones_like(y) for y in ys])
    assert len(gradients) == 5
    assert all(torch.equal(a, b) for a, b in zip((x, *given), kept, strict=True))  # type: ignore[arg-type]
    frozen = [None if p is None else p.detach() for p in given]
    (y,) = TrainedLinears.apply(x, LOW, False, frozen[0], None)  # type: ignore[no-untyped-call]
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.shape == x.shape
    assert not TrainedLinears.apply(x.detach(), LOW, False, frozen[0], None)[0].requires_grad  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("outputs", [(24,), (24, 8)])
def test_outputs_may_be_changed_in_place(outputs: tuple[int, ...]) -> None:
    """As OLMo's `clip_qkv` does."""
    given, x = parts(outputs, 24, True, torch.float32), torch.randn(2, 5, 24)

    def clamped(call: Any) -> Any:
        return lambda x, given: [y.clamp_(-1, 1) for y in call(x, given)]

    found, right = (run(clamped(call), x, given, torch.float32) for call in (ours(torch.float32), torchs()))
    assert all(gap(a, b) < 1e-6 for a, b in zip(found, right, strict=True))


@pytest.mark.usefixtures("side_by_side")
def test_an_output_that_nobody_uses_gives_its_weight_no_gradient() -> None:
    given, x = parts((24, 8), 24, True, torch.float32), torch.randn(5, 24, requires_grad=True)
    first, _ = TrainedLinears.apply(x, torch.float32, False, *given)  # type: ignore[no-untyped-call]
    first.sum().backward()
    one, other, bias, others_bias = given
    assert one.grad is not None and bias.grad is not None  # type: ignore[union-attr]  # noqa: PT018
    assert other.grad is None and others_bias.grad is None  # type: ignore[union-attr]  # noqa: PT018
    assert gap(x.grad, torch.ones(5, 24) @ one) < 1e-6  # type: ignore[arg-type, operator]


def test_weights_in_the_precision_of_products_may_not_change_before_the_backward_pass() -> None:
    given, x = parts((24,), 24, False, LOW), torch.randn(5, 24, dtype=LOW, requires_grad=True)
    (y,) = TrainedLinears.apply(x, LOW, False, *given)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        given[0].add_(1.0)  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_side_by_side_is_for_small_outputs_of_wide_inputs() -> None:
    assert pays_together([896, 128, 128], 896, 4), "query, key and value of 0.5B"
    assert not pays_together([4864, 4864], 896, 4), "gate and up"
    assert not pays_together([384, 384, 384], 384, 2), "23M, whose sum is in 16 bits"
    assert not pays_together([100], 4096, 4)


def test_a_device_without_wide_products_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert not has_wide_sums(cpu, torch.float32)
    assert not has_wide_sums(torch.device("meta"), LOW)

    def wrong(lefts: Any, rights: Any, dtype: torch.dtype, wide: bool) -> Tensor:
        return summed_products(lefts, rights, dtype, False) + 1

    monkeypatch.setattr(function, "summed_products", wrong)
    assert not has_wide_sums(cpu, LOW), "it gives something else"
    monkeypatch.setattr(function, "summed_products", lambda a, b, dtype, wide: summed_products(a, b, dtype, False))
    assert not has_wide_sums(cpu, LOW), "it rounds in between"
    monkeypatch.setattr(
        function, "summed_products", lambda a, b, *_: sum(x.float() @ y.float() for x, y in zip(a, b, strict=True))
    )
    assert has_wide_sums(cpu, LOW), "control: such sums are exact in float32"
