"""The kernels in Triton's interpreter, on the CPU: `test_kernels.py` runs this file in a process of its own.

The interpreter rounds to float16 as a GPU does, but cuts bfloat16 off: its error is twice as large, which a test uses.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from triton.errors import TritonError

from dynotune.model import residual
from dynotune.model.elementwise import gate, gate_lora, install, norm, triton_gate_lora, triton_norm
from dynotune.model.elementwise.launch import Launch
from dynotune.model.elementwise.triton_gate import Gated, GatedHalves
from dynotune.model.elementwise.triton_gate_lora import GatedLora
from dynotune.model.elementwise.triton_norm import RmsNorm
from dynotune.model.elementwise.triton_rotary import Rotary
from dynotune.model.elementwise.triton_sum_norm import SumRmsNorm
from dynotune.model.elementwise.usable import Kernels, kernels
from dynotune.model.lora import install as install_lora
from dynotune.model.lora.left_out import LeftOut
from tests.model.elementwise.stand_ins import rotate
from tests.model.lora.adapted import adapted_model, gap, largest_gap, loss_and_gradients
from tests.tiny import tiny_model

# The interpreter is slow and its draws are few: the same ones each time, so that a limit is met or missed for good.
settings.register_profile("interpreter", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("interpreter")

LIMIT = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 8e-3}
"""Of one rounding of one element, relative."""

DTYPES = st.sampled_from(list(LIMIT))


@triton.jit
def _count(Out, n):
    total = 0.0
    for _ in range(0, n, 1):
        total += 1.0
    tl.store(Out, total)


@pytest.fixture(scope="module", autouse=True)
def works() -> None:
    """Triton 3.6's interpreter fails on any loop with numpy 2.4."""
    out = torch.zeros(1)
    try:
        _count[(1,)](out, 3)
    except TritonError as error:
        pytest.skip(f"Triton {triton.__version__}'s interpreter does not run with numpy {np.__version__}: {error}")
    assert out.item() == 3


def draw(seed: int, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


def both(function: Any, reference: Any, inputs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and gradients of each, the reference in float64. What the backward reads is left as it was."""
    results = []
    for f, dtype in ((function, None), (reference, torch.float64)):
        leaves = [x.detach().to(dtype or x.dtype).requires_grad_() for x in inputs]
        if dtype is None:  # views of others, as in a model
            leaves = [x.detach().requires_grad_() for x in inputs]
        out = f(*leaves)
        outputs = out if isinstance(out, tuple) else (out,)
        copies = [x.detach().clone() for x in leaves]
        cotangents = [draw(90 + i, *y.shape).to(y.dtype) for i, y in enumerate(outputs)]
        gradients = torch.autograd.grad(outputs, leaves, cotangents)
        assert all(torch.equal(x, was) for x, was in zip(leaves, copies, strict=True))
        results.append([*(y.detach() for y in outputs), *gradients])
    return results[0], results[1]


def check(function: Any, reference: Any, inputs: list[Tensor], dtype: torch.dtype) -> None:
    found, right = both(function, reference, inputs)
    for a, b in zip(found, right, strict=True):
        assert a.shape == b.shape
        assert gap(a, b) < LIMIT[dtype]


def wide_norm(eps: float, offset: float) -> Any:
    return lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (offset + w)


@settings(max_examples=25, deadline=None)
@given(
    dtype=DTYPES,
    form=st.sampled_from(norm.FORMS),
    d=st.integers(1, 300),
    leading=st.sampled_from([(1,), (3,), (2, 5), (1, 70), (2, 3, 4)]),
    eps=st.sampled_from([1e-6, 1e-2]),
)
def test_norm(dtype: torch.dtype, form: Any, d: int, leading: tuple[int, ...], eps: float) -> None:
    x, w = draw(0, *leading, max(d, 2), dtype=dtype), draw(1, max(d, 2), dtype=dtype) + 2
    found, right = both(lambda x, w: RmsNorm.apply(x, w, eps, *form), wide_norm(eps, form[0]), [x, w])
    for a, b in zip(found, right, strict=True):
        # Where D is 2, hardly anything is left of dx: its error is measured by what it is the difference of.
        size = float(b.norm()) + (float(w.norm() / x.float().norm(dim=-1).min()) if b is right[1] else 0)
        assert float((a.double() - b).norm()) < 2 * LIMIT[dtype] * size


PAIRS = [(torch.float32, torch.float32), (torch.float32, torch.float16), (torch.float16, torch.float32),
         (torch.bfloat16, torch.bfloat16), (torch.float16, torch.float16)]  # fmt: skip
"""Of a residual and a branch: one has the dtype of the sum."""


@settings(max_examples=25, deadline=None)
@given(
    dtypes=st.sampled_from(PAIRS),
    form=st.sampled_from(norm.FORMS),
    d=st.integers(2, 300),
    leading=st.sampled_from([(1,), (3,), (2, 5), (1, 70), (2, 3, 4)]),
    wanted=st.sampled_from(["sum and norm", "norm"]),
    needed=st.sets(st.sampled_from([0, 1, 2]), min_size=1),
)
def test_a_sum_and_its_norm(
    dtypes: Any, form: Any, d: int, leading: tuple[int, ...], wanted: str, needed: set[int]
) -> None:
    a, b, w = draw(0, *leading, d, dtype=dtypes[0]), draw(1, *leading, d, dtype=dtypes[1]), draw(2, d) + 2
    low = torch.promote_types(*dtypes)
    wide = wide_norm(1e-6, form[0])

    def ours(*given: Tensor) -> Any:
        total, y = SumRmsNorm.apply(*given, 1e-6, *form)
        right = given[0] + given[1]
        assert torch.equal(total, right) or gap(total, right) < LIMIT[total.dtype], "bfloat16 is cut off here"
        return (total, y) if wanted == "sum and norm" and needed != {2} else y

    def theirs(a: Tensor, b: Tensor, w: Tensor) -> Any:
        total = a + b
        return (total, wide(total, w)) if wanted == "sum and norm" and needed != {2} else wide(total, w)

    results = []
    for function, dtype in ((ours, None), (theirs, torch.float64)):
        leaves = [x.to(dtype or x.dtype).requires_grad_(i in needed) for i, x in enumerate((a, b, w))]
        out = function(*leaves)
        outputs = out if isinstance(out, tuple) else (out,)
        cotangents = [draw(90 + i, *y.shape).to(y.dtype) for i, y in enumerate(outputs)]
        results.append([*outputs, *torch.autograd.grad(outputs, [leaves[i] for i in sorted(needed)], cotangents)])
    rest = float(
        w.norm() / (a.float() + b.float()).norm(dim=-1).min()
    )  # what dx is the difference of, where D is small
    for i, (x, right) in enumerate(zip(*results, strict=True)):
        of_leaf = i - len(results[0]) + len(needed)
        if of_leaf >= 0:
            assert x.dtype == [a, b, w][sorted(needed)[of_leaf]].dtype
        size = float(right.detach().norm()) + (rest if of_leaf >= 0 else 0)
        assert float((x.double() - right).detach().norm()) < 3 * max(LIMIT[low], LIMIT[x.dtype]) * size


def test_a_sum_whose_norm_nobody_wants_and_a_norm_whose_sum_nobody_wants() -> None:
    for wanted in (0, 1):
        leaves = [draw(i, 5, 32).requires_grad_() for i in range(2)] + [(draw(2, 32) + 2).requires_grad_()]
        out = SumRmsNorm.apply(*leaves, 1e-6, 0.0, True)[wanted]
        out.sum().backward()
        total = (leaves[0] + leaves[1]).detach().requires_grad_()
        right = total if wanted == 0 else norm.reference(total, leaves[2].detach(), 1e-6, 0.0, True)
        (expected,) = torch.autograd.grad(right.sum(), total)
        for x in leaves[:2]:
            assert x.grad is not None
            assert gap(x.grad, expected) < 1e-5
        assert (leaves[2].grad is None) is (wanted == 0)


def test_a_sum_that_is_changed_in_place_before_anybody_takes_its_norm_has_a_gradient() -> None:
    a, b = (draw(i, 5, 32).requires_grad_() for i in range(2))
    total, _ = SumRmsNorm.apply(a, b, (draw(2, 32) + 2).requires_grad_(), 1e-6, 0.0, True)
    total.mul_(3)
    total.sum().backward()
    assert a.grad is not None
    assert torch.equal(a.grad, torch.full_like(a, 3.0))


def test_gradient_of_the_weight_behind_a_sum_over_more_rows_than_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_norm, "PARTIALS", {32: 8})
    a, b, w = draw(0, 8 * 4 * 3 + 5, 512), draw(1, 8 * 4 * 3 + 5, 512), draw(2, 512).requires_grad_()
    g = draw(3, *a.shape)
    first, second = (torch.autograd.grad(SumRmsNorm.apply(a, b, w, 1e-6, 0.0, True)[1], w, g)[0] for _ in range(2))
    assert torch.equal(first, second)
    right = (g.double() * wide_norm(1e-6, 0.0)((a + b).double(), 1.0)).sum(0)
    assert gap(first, right) < 1e-6


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2", "phi3"])
def test_sums_in_norms_of_a_model(kind: str) -> None:
    model = tiny_model(kind).train()
    own = loss_and_gradients(model)
    install(model, torch.float32)
    sums = residual.install(model, torch.float32)
    assert sums.lines() == ["sums in the RMSNorm behind them: 4 of 4 norms"]
    found = loss_and_gradients(model)
    assert torch.equal(found[0], own[0]) or gap(found[0], own[0]) < 1e-6
    assert largest_gap(found[1], own[1]) < 1e-5
    assert sums.aside.calls == 0


@pytest.mark.parametrize("d", [896, 3584, 9000])
def test_norm_of_sizes_as_models_have_them(d: int) -> None:
    check(
        lambda x, w: RmsNorm.apply(x, w, 1e-6, 0.0, True),
        wide_norm(1e-6, 0.0),
        [draw(0, 5, d), draw(1, d)],
        torch.float32,
    )


def test_gradient_of_the_norms_weight_over_more_rows_than_programs_is_the_same_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triton_norm, "PARTIALS", {32: 8})
    x, w = draw(0, 8 * 4 * 3 + 5, 512), draw(1, 512).requires_grad_()  # 2 rows a tile, 7 tiles a program
    g = draw(2, *x.shape)
    first, second = (torch.autograd.grad(RmsNorm.apply(x, w, 1e-6, 0.0, True), w, g)[0] for _ in range(2))
    assert torch.equal(first, second)
    right = (g.double() * wide_norm(1e-6, 0.0)(x.double(), 1.0)).sum(0)
    assert gap(first, right) < 1e-6


def test_norm_of_heads_within_tokens_and_of_nothing() -> None:
    x = draw(0, 2, 5, 3, 16).transpose(1, 2)
    check(lambda x, w: RmsNorm.apply(x, w, 1e-6, 0.0, True), wide_norm(1e-6, 0.0), [x, draw(1, 16)], torch.float32)
    assert RmsNorm.apply(x, draw(1, 16), 1e-6, 0.0, True).stride() == x.stride()
    empty = torch.zeros(0, 16, requires_grad=True)
    w = draw(1, 16).requires_grad_()
    RmsNorm.apply(empty, w, 1e-6, 0.0, True).sum().backward()
    assert w.grad is not None
    assert not w.grad.any()


def test_dtypes_of_the_norm_are_those_of_torch() -> None:
    for x_dtype in LIMIT:
        for w_dtype in LIMIT:
            for form in norm.FORMS:
                x, w = draw(0, 3, 16, dtype=x_dtype), draw(1, 16, dtype=w_dtype)
                ours, own = RmsNorm.apply(x, w, 1e-6, *form), norm.reference(x, w, 1e-6, *form)
                assert ours.dtype == own.dtype
                assert gap(ours, own) < 1.5e-2


@settings(max_examples=15, deadline=None)
@given(
    low=st.sampled_from([torch.bfloat16, torch.float16]),
    form=st.sampled_from(norm.FORMS),
    d=st.integers(2, 300),
    leading=st.sampled_from([(1,), (2, 5), (1, 70)]),
)
def test_a_norm_that_rounds_what_it_writes_gives_what_one_that_is_rounded_gives(
    low: torch.dtype, form: Any, d: int, leading: tuple[int, ...]
) -> None:
    results = []
    for rounded in (lambda y: y.to(low), None):
        x, w = draw(0, *leading, d).requires_grad_(), (draw(1, d) + 2).requires_grad_()
        y = RmsNorm.apply(x, w, 1e-6, *form, low) if rounded is None else rounded(RmsNorm.apply(x, w, 1e-6, *form))
        assert y.dtype == low
        results.append([y, *torch.autograd.grad(y, (x, w), draw(9, *y.shape).to(low))])
    # Not to the bit: the interpreter cuts bits off, where a GPU rounds (`test_on_gpu`).
    assert all(gap(a, b) <= LIMIT[low] for a, b in zip(*results, strict=True))


@settings(max_examples=10, deadline=None)
@given(
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    low=st.sampled_from([torch.bfloat16, torch.float16]),
    heads=st.tuples(st.integers(1, 5), st.integers(1, 3)),
    half=st.sampled_from([1, 8, 40]),
)
def test_rotated_heads_that_are_rounded_as_they_are_written_are_the_same(
    dtype: torch.dtype, low: torch.dtype, heads: tuple[int, int], half: int
) -> None:
    cos, sin = (draw(5 + i, 1, 4, 2 * half) for i in range(2))
    results = []
    for at_once in (True, False):
        query, key = (
            draw(i, 1, 4, h, 2 * half, dtype=dtype).transpose(1, 2).requires_grad_() for i, h in enumerate(heads)
        )
        rotated = Rotary.apply(query, key, cos, sin, *([low] if at_once else []))
        rotated = tuple(x.to(low) for x in rotated)
        cotangents = [draw(7 + i, *x.shape).to(low) for i, x in enumerate(rotated)]
        results.append([*rotated, *torch.autograd.grad(rotated, (query, key), cotangents)])
    assert all(gap(a, b) <= LIMIT[low] for a, b in zip(*results, strict=True))


@settings(max_examples=25, deadline=None)
@given(
    dtype=DTYPES,
    tanh=st.booleans(),
    width=st.sampled_from([1, 2, 7, 64, 2048, 2049, 5000]),
    leading=st.sampled_from([(1,), (3,), (2, 5)]),
    scale=st.sampled_from([0.3, 3.0, 12.0]),
)
def test_gate(dtype: torch.dtype, tanh: bool, width: int, leading: tuple[int, ...], scale: float) -> None:
    gates, ups = draw(0, *leading, width, dtype=dtype, scale=scale), draw(1, *leading, width, dtype=dtype)
    found, right = both(lambda g, u: Gated.apply(g, u, tanh), lambda g, u: gate.reference(tanh, g, u), [gates, ups])
    for a, b in zip(found, right, strict=True):
        # Two roundings, as in transformers: of the activation and of the product. Where gate is far below 0 all is nearly 0:
        # the error is measured by what the inputs are.
        assert float((a.double() - b).norm()) < 2 * LIMIT[dtype] * (float(b.norm()) + 1e-2 * float(ups.double().norm()))
    halves = torch.cat([gates, ups], -1).requires_grad_()
    g = draw(2, *gates.shape, dtype=dtype)
    leaves = [gates.requires_grad_(), ups.requires_grad_()]
    one, two = GatedHalves.apply(halves, tanh), Gated.apply(*leaves, tanh)
    assert torch.equal(one, two)
    assert torch.equal(torch.autograd.grad(one, halves, g)[0], torch.cat(torch.autograd.grad(two, leaves, g), -1))


def test_gate_at_both_ends_and_of_nothing() -> None:
    gates = torch.tensor([-1e4, -200.0, -90.0, 0.0, 90.0, 1e4])
    for tanh in (False, True):
        found, right = both(
            lambda g, u, tanh=tanh: Gated.apply(g, u, tanh),
            lambda g, u, tanh=tanh: gate.reference(tanh, g, u),
            [gates, torch.ones(6)],
        )
        for a, b in zip(found, right, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-6, atol=1e-6)
    empty = torch.zeros(0, 8, requires_grad=True)
    Gated.apply(empty, empty, False).sum().backward()


RANKS = st.sampled_from([1, 5, 16, 20, 32, 40, 100])


def low_rank(rows: int, width: int, ranks: tuple[int, int, int], dtype: torch.dtype) -> list[Tensor]:
    """u of both, b of gate and up, v and a of down."""
    r_gate, r_up, r_down = ranks
    shapes = [(rows, r_gate + r_up), (width, r_gate), (width, r_up), (rows, r_down), (r_down, width)]
    return [draw(10 + i, *shape, dtype=dtype, scale=0.5) for i, shape in enumerate(shapes)]


def with_lora(function: Any, low: list[Tensor], tanh: bool, dtype: torch.dtype | None = None) -> Any:
    """Of gate and up, and of what is trained: B of both, and A of down."""
    u, b_gate, b_up, v, a = [x if dtype is None else x.to(dtype) for x in low]

    def run(gates: Tensor, ups: Tensor, *trained: Tensor) -> Tensor:
        below = LeftOut("gradient", v, (a,), scale=1.25)
        return function(gates, ups, u, b_gate, b_up, *trained, 0.5, 0.75, below, tanh)  # type: ignore[no-any-return]

    return run


def trained_of(low: list[Tensor]) -> list[Tensor]:
    """As the adapters are: float32, of the values that are multiplied with."""
    return [low[i].float() for i in (1, 2, 4)]


@settings(max_examples=12, deadline=None)
@given(
    dtype=st.sampled_from(
        [torch.float32, torch.float16]
    ),  # the interpreter multiplies the bits of bfloat16 as integers
    tanh=st.booleans(),
    width=st.sampled_from([1, 7, 64, 130]),
    leading=st.sampled_from([(1,), (65,), (2, 35)]),
    ranks=st.tuples(RANKS, RANKS, RANKS),
)
def test_gate_with_lora(
    dtype: torch.dtype, tanh: bool, width: int, leading: tuple[int, ...], ranks: tuple[int, int, int]
) -> None:
    gates, ups = draw(0, *leading, width, dtype=dtype), draw(1, *leading, width, dtype=dtype)
    low = low_rank(gates.numel() // width, width, ranks, dtype)
    own = with_lora(gate_lora.reference, low, tanh, torch.float64)
    found, right = both(with_lora(GatedLora.apply, low, tanh), own, [gates, ups, *trained_of(low)])
    # Sums are made in float32 of terms that may cancel, of a single value nearly all: so near is no sum of theirs.
    u, b_gate, b_up, v, a_down = (one.double().abs() for one in low)
    terms = u @ torch.cat([b_gate, b_up], 1).t(), v @ a_down
    cancelled = 2.0**-23 * sum(float(one.norm()) for one in terms) * (1 + float(torch.stack([gates, ups]).abs().max()))
    for a, b in zip(found, right, strict=True):
        # Rounded once, behind the sums: as near as one rounding, where LoRA's own products round each sum.
        allowed = LIMIT[dtype] * (float(b.norm()) + 1e-2 * float(ups.double().norm())) + cancelled
        assert float((a.double() - b).norm()) < allowed


@given(rows=st.integers(1, 1 << 23), width=st.integers(1, 1 << 18), programs=st.sampled_from([1, 1184, 2368]))
def test_rows_go_in_parts_whose_places_are_counted_in_32_bits(rows: int, width: int, programs: int) -> None:
    parts, per = triton_gate_lora._parts(rows, width, triton_gate_lora.BACKWARD, programs)
    assert (parts - 1) * per < rows <= parts * per
    assert (per + triton_gate_lora.BACKWARD.rows) * width < 1 << 31 or per == 16


def test_gate_with_lora_of_nothing_and_without_a_gradient_from_below() -> None:
    empty = torch.zeros(0, 8, requires_grad=True)
    low = low_rank(0, 8, (4, 4, 4), torch.float32)
    trained = [one.requires_grad_() for one in trained_of(low)]
    with_lora(GatedLora.apply, low, False)(empty, empty, *trained).sum().backward()
    assert all(one.grad is not None and not one.grad.any() for one in trained)
    gates, ups = draw(0, 5, 40).requires_grad_(), draw(1, 5, 40).requires_grad_()
    u, *low = low_rank(5, 40, (4, 4, 4), torch.float32)
    *trained, of_down = (one.clone().requires_grad_() for one in trained_of([u, *low]))
    grads = []
    for f in (GatedLora.apply, gate_lora.reference):
        h = f(gates, ups, u, *low[:2], *trained, of_down, 0.5, 0.5, LeftOut("gradient"), False)
        grads.append(torch.autograd.grad(h.sum(), (gates, ups, *trained), retain_graph=True))
        assert torch.autograd.grad(h.sum(), of_down, allow_unused=True) == (None,), "down has given it by itself"
    assert all(gap(a, b) < 1e-6 for a, b in zip(*grads, strict=True))


def test_gate_with_lora_of_weights_that_lie_otherwise_in_memory() -> None:
    gates, ups = draw(0, 5, 40).requires_grad_(), draw(1, 5, 40).requires_grad_()
    u, *wide, a = low_rank(5, 40, (4, 6, 8), torch.float32)
    other = [u, *(x.t().contiguous().t() for x in wide[:2]), wide[2], a.t().contiguous().t()]
    results = []
    for low in ([u, *wide, a], other):
        leaves = [gates, ups, *(one.requires_grad_() for one in trained_of([u, *wide, a]))]
        h = with_lora(GatedLora.apply, low, False)(*leaves)
        results.append((h, *torch.autograd.grad(h.sum(), leaves)))
    assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))


def test_a_model_adds_its_adapters_in_the_kernel() -> None:
    model: Any = adapted_model("qwen2", r=20)
    install_lora(model, torch.float32)
    install(model, torch.float32)
    loss, gradients = loss_and_gradients(model)
    for fused in gate_lora.candidates(model).values():
        between = gate_lora.adapters_between(fused, GatedLora.apply, gate_lora.MOST_RANK)
        assert isinstance(between, gate_lora.AdaptersBetween), between
        fused.adapters = between
    found_loss, found = loss_and_gradients(model)
    assert all(fused.adapters and fused.adapters.calls == 1 for fused in gate_lora.candidates(model).values())
    assert gap(found_loss, loss) < 1e-6
    assert largest_gap(found, gradients) < 1e-5


@settings(max_examples=20, deadline=None)
@given(
    dtype=DTYPES,
    tables=DTYPES,
    heads=st.tuples(st.integers(1, 5), st.integers(1, 3)),
    half=st.sampled_from([1, 3, 8, 40]),
    batch=st.integers(1, 2),
    one_table=st.booleans(),
    gap_in_memory=st.booleans(),
)
def test_rotary(
    dtype: torch.dtype, tables: torch.dtype, heads: Any, half: int, batch: int, one_table: bool, gap_in_memory: bool
) -> None:
    t, d = 4, 2 * half
    width = sum(heads) * d
    x = draw(0, batch, t, width + 6 if gap_in_memory else width, dtype=dtype)
    query = x[..., : heads[0] * d].view(batch, t, heads[0], d).transpose(1, 2)
    key = x[..., heads[0] * d : width].view(batch, t, heads[1], d).transpose(1, 2)
    cos, sin = (draw(5 + i, 1 if one_table else batch, t, d, dtype=tables) for i in range(2))
    found, right = both(
        lambda q, k: Rotary.apply(q, k, cos, sin), lambda q, k: rotate(q, k, cos.double(), sin.double()), [query, key]
    )
    assert found[0].dtype == torch.promote_types(dtype, tables)
    for a, b in zip(found, right, strict=True):
        assert gap(a, b) < LIMIT[dtype]


def test_the_rotary_gradient_may_come_in_another_order_or_not_at_all() -> None:
    query, key = (draw(i, 1, 5, h, 8).transpose(1, 2).requires_grad_() for i, h in enumerate((3, 2)))
    cos, sin = draw(3, 1, 5, 8), draw(4, 1, 5, 8)
    g = draw(5, 1, 3, 5, 8)  # heads outside of tokens
    (found,) = torch.autograd.grad(Rotary.apply(query, key, cos, sin)[0], query, g)
    (right,) = torch.autograd.grad(rotate(query, key, cos, sin)[0], query, g)
    assert gap(found, right) < 1e-6


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "phi3"])
def test_a_model_runs_on_the_kernels_alone(kind: str) -> None:
    model = tiny_model(kind).train()
    loss, gradients = loss_and_gradients(model)
    engaged = install(model, torch.float32)
    found_loss, found = loss_and_gradients(model)
    assert all(engaged.fused.values())
    assert not any(engaged.others.values())
    assert engaged.calls_to_own == 0
    assert gap(found_loss, loss) < 1e-6
    assert largest_gap(found, gradients) < 1e-5


def test_working_precision_is_compared_with_float32() -> None:
    engaged = install(tiny_model("qwen3").half(), torch.float16)
    assert not any(engaged.others.values())
    cut_off = install(
        tiny_model("qwen3").bfloat16(), torch.bfloat16
    )  # the interpreter's bfloat16: a kernel that rounds badly
    assert not any(cut_off.fused.values())
    assert all("rounding is larger" in why for kind in cut_off.others.values() for why in kind.values())


def test_float32_weights_under_autocast() -> None:
    model = tiny_model("qwen3").train()
    engaged = install(model, torch.float16)
    assert not any(engaged.others.values())
    ids = torch.arange(7, 47).view(2, 20)
    losses = []
    for _ in range(2):
        with torch.autocast("cpu", torch.float16):
            losses.append(model(input_ids=ids, labels=ids).loss.detach())
        assert engaged.calls_to_own == 0
        engaged.uninstall()
    assert gap(losses[0], losses[1]) < 1e-3


def test_lora_with_dropout_and_recomputation() -> None:
    from dynotune.model.lora import install as install_lora

    model: Any = adapted_model("qwen2", lora_dropout=0.1)
    fused = install_lora(model, torch.float32)
    torch.manual_seed(1)
    loss, gradients = loss_and_gradients(model)
    engaged = install(model, torch.float32)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    torch.manual_seed(1)
    found_loss, found = loss_and_gradients(model)
    assert engaged.calls_to_own == 0
    assert all(not shared.unclaimed for shared in fused.copies.shared)
    assert gap(found_loss, loss) < 1e-6
    assert largest_gap(found, gradients) < 1e-5


class FakeKernel:
    """What Triton gives where there is a GPU: launches, and the compiled variant."""

    def __init__(self) -> None:
        self.public: list[Any] = []
        self.short: list[Any] = []

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, num_warps: int) -> Any:
            self.public.append((grid, args, num_warps))
            variant = len(self.public)
            run = lambda *args: self.short.append((variant, args))  # noqa: E731
            return SimpleNamespace(run=run, function=f"function {variant}", packed_metadata=f"metadata {variant}")

        return launch


def test_a_known_variant_is_launched_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77, raising=False)
    kernel = FakeKernel()
    launch = Launch(kernel)
    a, b = torch.zeros(64), torch.zeros(64)
    launch(3, (a, b), (5, 1e-6), (64, True), 4)
    launch(9, (b, a), (6, 1e-5), (64, True), 4)
    assert kernel.public == [((3,), (a, b, 5, 1e-6, 64, True), 4)]
    addresses = b.data_ptr(), a.data_ptr()
    call = (9, 1, 1, 77, "function 1", "metadata 1", None, None, None, *addresses, 6, 1e-5, 64, True)
    assert kernel.short == [(1, call)]
    launch(3, (a, b.half()), (5, 1e-6), (64, True), 4)  # each of these is another variant
    launch(3, (a, b), (5, 1e-6), (64, False), 4)
    launch(3, (a, b), (5, 1e-6), (64, True), 8)
    launch(3, (a, b[1:]), (5, 1e-6), (64, True), 4)  # its address is no multiple of 16
    launch(3, (a, b[1:]), (5, 1e-6), (64, True), 4)
    assert (len(kernel.public), len(kernel.short)) == (6, 1)
    monkeypatch.setattr(triton, "__version__", "3.99.0")  # may call compiled kernels in another way
    kernel = FakeKernel()
    launch = Launch(kernel)
    for _ in range(2):
        launch(3, (a, b), (5, 1e-6), (64, True), 4)
    assert (len(kernel.public), len(kernel.short)) == (2, 0)


def test_the_interpreter_is_known_as_one() -> None:
    found = kernels()
    assert isinstance(found, Kernels)
    assert found.on_cpu


def test_tiles_under_way_fit_into_shared_memory() -> None:
    """Of every width that a norm may have; a program may have 99 KiB where it has least. Control: three of 16,384 do not."""
    for d in range(1, 65_537, 61):
        rows, block, _ = triton_norm.tile(d)
        under_way = triton_norm.stages(draw(0, 1), rows * block)
        assert (under_way - 1) * rows * block * 3 * 4 < 99 * 1024, d
    assert triton_norm.stages(draw(0, 1), 896) == 3
    assert 2 * 16_384 * 3 * 4 > 99 * 1024
