"""The sum of a residual and a branch, and the RMSNorm of that sum, in one Triton kernel forward and one backward.

Apart, the sum is written and read again, and in the backward pass the norm's gradient, the sum's and, where the branch is in
lower precision, a copy of it are three kernels. Imported only where Triton is wanted.
Legend of shapes: N rows (all leading dimensions), D normalised dimension.
"""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# A kernel's annotations are Triton's language, not Python's.

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from dynotune.model.elementwise.launch import Launch
from dynotune.model.elementwise.triton_norm import normed, partials, stages, through_norm, tile


class SumRmsNorm(torch.autograd.Function):
    """`SumRmsNorm.apply(a, b, weight, eps, offset, round_first)`. A profile shows it under its name, both ways."""

    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        b: Tensor,
        weight: Tensor,
        eps: float,
        offset: float,
        round_first: bool,
        low: torch.dtype | None = None,
    ) -> tuple[Tensor, Tensor]:
        """`a` and `b` [..., D] of one shape, `weight` [D]; gives a + b in the dtype that torch promotes to, which one of
        both has, with the bits of torch's, and its norm as `RmsNorm` gives it, rounded to `low` where that is given."""
        a, b = a.contiguous(), b.contiguous()
        total = torch.empty_like(a, dtype=torch.promote_types(a.dtype, b.dtype))
        d = weight.shape[0]
        n = total.numel() // d
        out = low or (torch.promote_types(total.dtype, weight.dtype) if round_first else total.dtype)
        y = torch.empty_like(total, dtype=out)
        rstd_N = torch.empty(n, dtype=torch.float32, device=a.device)
        rows, block, warps = tile(d)
        if n:
            constants = d, offset, round_first, rows, block
            _launch_forward(-(-n // rows), (a, b, weight, total, y, rstd_N), (n, eps), constants, warps)
        ctx.save_for_backward(total, weight, rstd_N)
        ctx.offset, ctx.of = offset, (a.dtype, b.dtype)
        ctx.set_materialize_grads(False)
        return total, y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dtotal: Tensor | None, dy: Tensor | None) -> tuple[Tensor | None, ...]:
        """What is not asked for is not computed; nothing saved is written to. The gradient of the sum is added to the norm's
        in float32 and rounded once."""
        needs_a, needs_b, needs_weight = ctx.needs_input_grad[:3]
        of_a, of_b = ctx.of
        others = (None,) * 4
        if dy is None:  # nobody took the norm, perhaps since the sum was changed in place: then it may not be read
            da, db = (None if dtotal is None else dtotal.to(of) for of in ctx.of)
            return da if needs_a else None, db if needs_b else None, None, *others
        total, weight, rstd_N = ctx.saved_tensors
        d, n = weight.shape[0], rstd_N.shape[0]
        rows, block, warps = tile(d)
        tiles = -(-n // rows)
        programs = min(tiles, partials(warps)) if needs_weight else tiles
        of_low = of_a if of_a is not total.dtype else of_b
        needs_wide = (needs_a and of_a is total.dtype) or (needs_b and of_b is total.dtype)
        needs_low = of_low is not total.dtype and (needs_a if of_low is of_a else needs_b)
        wide = torch.empty_like(total) if needs_wide else total
        low = torch.empty_like(total, dtype=of_low) if needs_low else total
        partial = torch.empty(programs, d, dtype=torch.float32, device=total.device) if needs_weight else rstd_N
        if n:
            with_total = dtotal is not None
            given = dtotal.contiguous() if dtotal is not None else total
            numbers = n, rows * -(-tiles // programs)
            under_way = stages(total, rows * block)
            constants = d, ctx.offset, with_total, needs_wide, needs_low, needs_weight, rows, block, under_way
            tensors = given, dy.contiguous(), total, weight, rstd_N, wide, low, partial
            _launch_backward(programs, tensors, numbers, constants, warps)
        da, db = (wide if of is total.dtype else low for of in ctx.of)
        dweight = partial.sum(0).to(weight.dtype) if needs_weight else None
        return da if needs_a else None, db if needs_b else None, dweight, *others


@triton.jit(do_not_specialize=["n"])
def dynotune_sum_rms_norm_forward(
    A,
    B,
    W,
    Total,
    Y,
    Rstd,
    n,
    eps,
    D: tl.constexpr,
    OFFSET: tl.constexpr,
    ROUND_FIRST: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    inside = (rows < n)[:, None] & (columns < D)[None, :]
    places = rows[:, None] * D + columns[None, :]
    weight = tl.load(W + columns, mask=columns < D, other=0.0).to(tl.float32)[None, :]
    a = tl.load(A + places, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(B + places, mask=inside, other=0.0).to(tl.float32)
    total = (a + b).to(Total.dtype.element_ty)
    tl.store(Total + places, total, mask=inside)
    y, rstd = normed(total, weight + OFFSET, eps, D, ROUND_FIRST)
    tl.store(Rstd + rows, rstd, mask=rows < n)
    tl.store(Y + places, y.to(Y.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["n", "per_program"])
def dynotune_sum_rms_norm_backward(
    Dtotal,
    Dy,
    X,
    W,
    Rstd,
    Wide,
    Low,
    Partial,
    n,
    per_program,
    D: tl.constexpr,
    OFFSET: tl.constexpr,
    WITH_TOTAL: tl.constexpr,
    NEEDS_WIDE: tl.constexpr,
    NEEDS_LOW: tl.constexpr,
    NEEDS_WEIGHT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    weight = tl.load(W + columns, mask=columns < D, other=0.0).to(tl.float32) + OFFSET
    dweight = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, per_program, ROWS, num_stages=STAGES):
        rows = program * per_program + start + tl.arange(0, ROWS)
        inside = (rows < n)[:, None] & (columns < D)[None, :]
        places = rows[:, None] * D + columns[None, :]
        dy = tl.load(Dy + places, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(X + places, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(Rstd + rows, mask=rows < n, other=0.0)[:, None]
        normal = x * rstd
        if NEEDS_WIDE or NEEDS_LOW:
            dx = through_norm(dy, normal, rstd, weight[None, :], D)
            if WITH_TOTAL:
                dx += tl.load(Dtotal + places, mask=inside, other=0.0).to(tl.float32)
            if NEEDS_WIDE:
                tl.store(Wide + places, dx.to(Wide.dtype.element_ty), mask=inside)
            if NEEDS_LOW:
                tl.store(Low + places, dx.to(Low.dtype.element_ty), mask=inside)
        if NEEDS_WEIGHT:
            dweight += tl.sum(dy * normal, 0)
    if NEEDS_WEIGHT:
        tl.store(Partial + program * D + columns, dweight, mask=columns < D)


_launch_forward, _launch_backward = Launch(dynotune_sum_rms_norm_forward), Launch(dynotune_sum_rms_norm_backward)
