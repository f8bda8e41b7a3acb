"""Promise: a speed-up that only seems to run is found out. Planted lies, each beside the honest one that passes.

The speed-ups are toys with operators of their own; the steps are real ones on the CPU.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dynotune.measure.evidence import Evidence, Phase
from dynotune.measure.traces.step import Tracer
from dynotune.speedups.absences import math_attention
from dynotune.speedups.expectation import Absent, Expectation, Expected, Observation, Verdict
from dynotune.speedups.judge import judge
from tests.speedups.traced_steps import CPU, step_of

LAYERS = 28
NORMS = tuple(f"layers.{i}.norm" for i in range(LAYERS))


class FusedNorm(torch.autograd.Function):
    """What an honest speed-up runs: seen in a trace as an operator of this name."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        return torch.autograd.grad(y, x, upstream)[0]


class Norm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


class Layer(nn.Module):
    def __init__(self, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        self.norm, self.mix, self.attend = Norm(), nn.Linear(8, 8), attend

    def forward(self, x: Tensor) -> Tensor:
        q = self.mix(self.norm(x))
        return x + self.attend(q, q, q)


def no_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q


class Model(nn.Module):
    def __init__(self, layers: int = LAYERS, attend: Callable[..., Tensor] = no_attention) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Layer(attend) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


EXPECTED: list[Expectation] = [
    Expected("fused norm", Phase.FORWARD, operators=("^FusedNorm$",), at=NORMS),
    Expected("fused norm", Phase.BACKWARD, operators=("^FusedNormBackward$",), at=NORMS),
]


def verdict(install: Callable[[Model], None], micro_batches: int = 2) -> Observation:
    model = Model()
    install(model)
    x = torch.randn(1, 4, 8, requires_grad=True)
    step = step_of(model, lambda: model(x).square().sum(), NORMS, micro_batches=micro_batches)
    return judge(EXPECTED, step, NORMS)


def patch(model: Model, norms: range, with_: Callable[[Tensor], Tensor]) -> None:
    for i in norms:
        model.layers[i].norm.forward = with_


def test_the_honest_one_is_engaged_and_off_is_not() -> None:
    on = verdict(lambda model: patch(model, range(LAYERS), FusedNorm.apply))
    assert (on.verdict, on.count) == (Verdict.ENGAGED, "28 of 28")
    assert on.evidence == "FusedNorm x 56 (forward), FusedNormBackward x 56 (backward)"
    off = verdict(lambda model: None)
    assert (off.verdict, off.count) == (Verdict.NOT_ENGAGED, "0 of 28")


def test_a_patch_that_does_nothing() -> None:
    """It stands in all places, under the right name, and runs what was there."""

    def install(model: Model) -> None:
        for i in range(LAYERS):
            own = model.layers[i].norm.forward

            def fused_norm(x: Tensor, own: Callable[[Tensor], Tensor] = own) -> Tensor:
                return own(x)

            model.layers[i].norm.forward = fused_norm

    assert verdict(install).verdict is Verdict.NOT_ENGAGED


def test_a_patch_of_a_class_that_the_model_does_not_use() -> None:
    class OtherNorm(Norm):
        pass

    def install(model: Model) -> None:
        OtherNorm.forward = FusedNorm.apply  # type: ignore[method-assign]

    assert verdict(install).verdict is Verdict.NOT_ENGAGED


@pytest.mark.parametrize("left_out", [0, 13, 27])
def test_a_patch_that_takes_27_of_28_layers(left_out: int) -> None:
    def install(model: Model) -> None:
        patch(model, range(LAYERS), FusedNorm.apply)
        del model.layers[left_out].norm.forward

    found = verdict(install)
    assert (found.verdict, found.count) == (Verdict.PARTIAL, "27 of 28")
    assert found.missing == (f"layers.{left_out}.norm",)


def test_an_installation_that_takes_27_of_28_layers_and_says_so() -> None:
    """It stands where it says that it stands, everywhere there, and one layer kept its own forward."""
    taken, left_out = NORMS[1:], (f"{NORMS[0]}: its forward was replaced by someone else",)
    model, x = Model(), torch.randn(1, 4, 8, requires_grad=True)
    patch(model, range(1, LAYERS), FusedNorm.apply)
    step = step_of(model, lambda: model(x).square().sum(), NORMS, micro_batches=2)
    expected: list[Expectation] = [replace(one, at=taken) for one in EXPECTED if isinstance(one, Expected)]
    found = judge(expected, step, taken, left_out)
    assert (found.verdict, found.count) == (Verdict.PARTIAL, "27 of 28")
    assert found.missing == ("layers.0.norm (left out: its forward was replaced by someone else)",)


def test_a_layer_that_steps_aside_in_one_micro_batch() -> None:
    def install(model: Model) -> None:
        patch(model, range(LAYERS), FusedNorm.apply)
        norm, calls = model.layers[5].norm, []
        own = type(norm).forward

        def now_and_then(x: Tensor) -> Tensor:
            calls.append(x)
            return own(norm, x) if len(calls) == 2 else FusedNorm.apply(x)

        norm.forward = now_and_then

    assert verdict(install, micro_batches=1).verdict is Verdict.ENGAGED
    found = verdict(install)
    assert (found.verdict, found.missing) == (Verdict.PARTIAL, ("layers.5.norm",))


def test_a_forward_that_is_fused_and_a_backward_that_is_not() -> None:
    own = Norm()

    def half(x: Tensor) -> Tensor:
        with torch.no_grad():
            y: Tensor = FusedNorm.apply(x)
        again: Tensor = own(x)
        return again + (y - again).detach()

    found = verdict(lambda model: patch(model, range(LAYERS), half))
    assert (found.verdict, found.seen) == (Verdict.PARTIAL, 0)
    assert found.missing[0] == "layers.0.norm (backward)"


def test_a_patch_that_loses_the_gradient() -> None:
    found = verdict(lambda model: patch(model, range(1), lambda x: FusedNorm.apply(x).detach()))
    assert found.verdict is Verdict.PARTIAL
    assert "layers.0.norm (backward)" in found.missing


def test_a_flag_that_nobody_reads() -> None:
    def install(model: Model) -> None:
        model.use_fused_norm = True  # type: ignore[assignment]
        for layer in model.layers:
            layer.norm.config = {"fused": True}

    assert verdict(install).verdict is Verdict.NOT_ENGAGED


def flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]


def falls_back(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As asked for flash where its kernel does not take the input: the same result, written out."""
    with nn.attention.sdpa_kernel([nn.attention.SDPBackend.MATH]):
        return flash(q, k, v)


def some_fall_back(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.cat([flash(q[:, :, :4], k[:, :, :4], v[:, :, :4]), falls_back(q, k, v)[:, :, 4:]], -1)


@pytest.mark.parametrize(
    ("attend", "expected"),
    [(flash, Verdict.ENGAGED), (falls_back, Verdict.NOT_ENGAGED), (some_fall_back, Verdict.PARTIAL)],
)
def test_a_backend_that_falls_back(attend: Callable[..., Tensor], expected: Verdict) -> None:
    places = ("layers.0", "layers.1")
    kernel = r"^aten::_scaled_dot_product_flash_attention_for_cpu"
    expectations: list[Expectation] = [
        Expected("flash attention", Phase.FORWARD, operators=(f"{kernel}$",), at=places),
        Expected("flash attention", Phase.BACKWARD, operators=(f"{kernel}_backward$",), at=places),
        math_attention(),
    ]
    model = Model(2, attend)
    x = torch.randn(1, 4, 8, requires_grad=True)
    found = judge(expectations, step_of(model, lambda: model(x).sum(), places), places)
    assert found.verdict is expected
    if expected is Verdict.ENGAGED:
        assert not found.against
    else:
        assert "_scaled_dot_product_attention_math" in found.against[0]


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled_step(model: Model, rows: int) -> tuple[Observation, Evidence]:
    """The step behind the first, as in a run."""
    places = tuple(f"layers.{i}" for i in range(2))
    expectations: list[Expectation] = [
        Expected("compiled layer", Phase.FORWARD, operators=("^CompiledFunction$",), at=places),
        Expected("compiled layer", Phase.BACKWARD, operators=("^CompiledFunctionBackward$",), at=places),
        Absent("compiled again", lambda step: str(step.facts["compile"]) if step.facts["compile"] else None),
    ]
    x = torch.randn(1, rows, 8, requires_grad=True)
    step = step_of(model, lambda: model(x).sum(), places)
    return judge(expectations, step, places), step


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compile_that_runs_eager_after_its_recompile_limit() -> None:
    with torch._dynamo.config.patch(recompile_limit=1, automatic_dynamic_shapes=False):
        model = Model(2)
        for layer in model.layers:
            layer.compile(backend="aot_eager", dynamic=False)
        x = torch.randn(1, 4, 8, requires_grad=True)
        model(x).sum().backward()
        honest, _ = compiled_step(model, 4)
        assert (honest.verdict, honest.count) == (Verdict.ENGAGED, "2 of 2")
        model(x.detach().repeat(1, 2, 1).requires_grad_()).sum().backward()  # another shape: the limit is reached
        eager, step = compiled_step(model, 8)
    assert (eager.verdict, eager.count) == (Verdict.NOT_ENGAGED, "0 of 2")
    assert step.count(["^aten::addmm$"], phase=Phase.FORWARD) == 2, "the layers ran all the same"


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compile_that_compiles_in_the_middle_of_the_run() -> None:
    model = Model(2)
    for layer in model.layers:
        layer.compile(backend="aot_eager", dynamic=False)
    x = torch.randn(1, 4, 8, requires_grad=True)
    model(x).sum().backward()
    again, _ = compiled_step(model, 6)
    assert again.verdict is Verdict.PARTIAL
    assert "unique_graphs" in again.against[0]


def test_a_step_that_nobody_could_trace_proves_nothing() -> None:
    model = Model()
    patch(model, range(LAYERS), FusedNorm.apply)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        with Tracer(model, NORMS, CPU).step(2) as marks, marks.forward(0):
            model(torch.randn(1, 4, 8))
        assert marks.evidence is not None
        found = judge(EXPECTED, marks.evidence, NORMS)
    assert found.verdict is Verdict.UNKNOWN
