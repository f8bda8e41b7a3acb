"""RMSNorm in one Triton kernel forward and one backward. Imported only where Triton is wanted.

Zhang and Sennrich, arXiv 1910.07467. One pass each: a row is held by one program, so it is read once.
Legend of shapes: N rows (all leading dimensions), D normalised dimension.
"""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# A kernel's annotations are Triton's language, not Python's.

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from dynotune.model.elementwise.launch import Launch

PARTIALS = {2: 1056, 32: 264}
"""Programs that sum the weight's gradient, each over its own rows, by the most warps that they have. The same on every
device: so are the sums. Fewer leave an H200's memory idle, more write partial sums for nothing."""

ELEMENTS = 1024
"""The least elements of a program: several rows where D is small."""

STAGES = 3
"""Tiles that a program of the backward pass has under way, since each waits for the sums along its rows. H200, 32,768 rows
of 896, residual in float32: 198 us with one (two rows a tile, 264 programs), 134 with three (one row, 1,056)."""

WIDEST = 4096
"""Elements of a tile up to which that is so. Those under way lie in shared memory, two times three tensors in float32 98,304
bytes of it, which every GPU with 16 bits has but Turing; above it was not measured."""


@cache
def tile(d: int) -> tuple[int, int, int]:
    """Rows and columns of a program's tile, and its warps, for rows of `d`."""
    block = triton.next_power_of_2(d)
    rows = max(1, ELEMENTS // block)
    return rows, block, min(32, max(1, rows * block // 512))


def stages(x: Tensor, elements: int) -> int:
    """Of a backward pass over tiles of so many elements, by the device that `x` is on."""
    if elements > WIDEST or (x.is_cuda and torch.cuda.get_device_capability(x.device) < (8, 0)):
        return 1
    return STAGES


def partials(warps: int) -> int:
    """The most programs of a backward pass that sums the weight's gradient."""
    return next(programs for most, programs in PARTIALS.items() if warps <= most)


class RmsNorm(torch.autograd.Function):
    """`RmsNorm.apply(x, weight, eps, offset, round_first)`. A profile shows it under its name, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        eps: float,
        offset: float,
        round_first: bool,
        low: torch.dtype | None = None,
    ) -> Tensor:
        """`x` [..., D] and `weight` [D]; gives [..., D], rounded to `low` where that is given.

        With `round_first` the normalised x is rounded to its own dtype, then multiplied by the weight, which gives the
        dtype that torch promotes to. Without, x * (offset + weight) is float32 until it is rounded to the dtype of x.
        """
        x = _dense(x)
        d = weight.shape[0]
        n = x.numel() // d
        out = low or (torch.promote_types(x.dtype, weight.dtype) if round_first else x.dtype)
        y = torch.empty_like(x, dtype=out)
        rstd_N = torch.empty(n, dtype=torch.float32, device=x.device)
        rows, block, warps = tile(d)
        if n:
            constants = d, offset, round_first, rows, block
            _launch_forward(-(-n // rows), (x, weight, y, rstd_N), (n, eps), constants, warps)
        ctx.save_for_backward(x, weight, rstd_N)
        ctx.offset = offset
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None, None]:
        """What is not asked for is not computed; nothing saved is written to."""
        x, weight, rstd_N = ctx.saved_tensors
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        dy = dy.contiguous() if x.is_contiguous() else dy.transpose(1, 2).contiguous().transpose(1, 2)
        d, n = weight.shape[0], rstd_N.shape[0]
        rows, block, warps = tile(d)
        tiles = -(-n // rows)
        programs = min(tiles, partials(warps)) if needs_weight else tiles
        dx = torch.empty_like(x) if needs_x else x
        partial = torch.empty(programs, d, dtype=torch.float32, device=x.device) if needs_weight else rstd_N
        if n:
            numbers = n, rows * -(-tiles // programs)
            constants = d, ctx.offset, needs_x, needs_weight, rows, block, stages(x, rows * block)
            _launch_backward(programs, (dy, x, weight, rstd_N, dx, partial), numbers, constants, warps)
        dweight = partial.sum(0).to(weight.dtype) if needs_weight else None
        return dx if needs_x else None, dweight, None, None, None, None


def _dense(x: Tensor) -> Tensor:
    """`x` without gaps, its rows in any order: heads may lie within tokens, as in normalised queries."""
    if x.is_contiguous() or (x.dim() == 4 and x.transpose(1, 2).is_contiguous()):
        return x
    return x.contiguous()


@triton.jit
def normed(x, scale, eps, D: tl.constexpr, ROUND_FIRST: tl.constexpr):
    """The norm of rows x [ROWS, BLOCK] in float32 and their rstd [ROWS]."""
    wide = x.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(wide * wide, 1) / D + eps)
    normal = wide * rstd[:, None]
    if ROUND_FIRST:
        normal = normal.to(x.dtype).to(tl.float32)
    return normal * scale, rstd


@triton.jit
def through_norm(dy, normal, rstd, scale, D: tl.constexpr):
    """The gradient of a norm's input [ROWS, BLOCK] from that of its output. rstd [ROWS, 1]."""
    dnormal = dy * scale
    along = tl.sum(dnormal * normal, 1)[:, None] / D
    return rstd * (dnormal - normal * along)


@triton.jit(do_not_specialize=["n"])
def dynotune_rms_norm_forward(
    X,
    W,
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
    x = tl.load(X + places, mask=inside, other=0.0)
    y, rstd = normed(x, weight + OFFSET, eps, D, ROUND_FIRST)
    tl.store(Rstd + rows, rstd, mask=rows < n)
    tl.store(Y + places, y.to(Y.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["n", "per_program"])
def dynotune_rms_norm_backward(
    Dy,
    X,
    W,
    Rstd,
    Dx,
    Partial,
    n,
    per_program,
    D: tl.constexpr,
    OFFSET: tl.constexpr,
    NEEDS_X: tl.constexpr,
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
        if NEEDS_X:
            dx = through_norm(dy, normal, rstd, weight[None, :], D)
            tl.store(Dx + places, dx.to(Dx.dtype.element_ty), mask=inside)
        if NEEDS_WEIGHT:
            dweight += tl.sum(dy * normal, 0)
    if NEEDS_WEIGHT:
        tl.store(Partial + program * D + columns, dweight, mask=columns < D)


_launch_forward, _launch_backward = Launch(dynotune_rms_norm_forward), Launch(dynotune_rms_norm_backward)
