"""The gated activation act(gate) * up in one Triton kernel forward and one backward. Imported only where Triton is wanted.

Shazeer, arXiv 2002.05202 (GLU variants). Both activations are gate * sigmoid(z): z = gate for SiLU, and for the tanh form of
GELU z = 2 sqrt(2 / pi) (gate + 0.044715 gate^3), since (1 + tanh(u)) / 2 = sigmoid(2 u). The backward computes the
activation again instead of keeping it.
Legend of shapes: N rows (all leading dimensions), I intermediate.
"""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# A kernel's annotations are Triton's language, not Python's.

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from dynotune.model.elementwise.launch import Launch

BLOCK, WARPS = 2048, 4

_SLOPE: tl.constexpr = tl.constexpr(2 * math.sqrt(2 / math.pi))
_CUBE: tl.constexpr = tl.constexpr(0.044715)


class Gated(torch.autograd.Function):
    """`Gated.apply(gate, up, tanh)`: act(gate) * up, SiLU or with `tanh` GELU's tanh form. Keeps gate and up only."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, tanh: bool) -> Tensor:
        """`gate` and `up` [..., I] of one dtype; gives [..., I] in it."""
        gate, up = gate.contiguous(), up.contiguous()
        h = torch.empty_like(gate)
        width = gate.shape[-1]
        _activate(gate, up, h, gate.numel(), width, width, tanh)
        ctx.save_for_backward(gate, up)
        ctx.tanh = tanh
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor) -> tuple[Tensor, Tensor, None]:
        gate, up = ctx.saved_tensors
        dgate, dup = torch.empty_like(gate), torch.empty_like(up)
        width = gate.shape[-1]
        _derive(dh.contiguous(), gate, up, dgate, dup, gate.numel(), width, width, ctx.tanh)
        return dgate, dup, None


class GatedHalves(torch.autograd.Function):
    """`GatedHalves.apply(both, tanh)`: as `Gated`, where gate and up are the halves of one tensor [..., 2 I]."""

    @staticmethod
    def forward(ctx: Any, both: Tensor, tanh: bool) -> Tensor:
        both = both.contiguous()
        width = both.shape[-1] // 2
        h = both.new_empty(*both.shape[:-1], width)
        _activate(both, both[..., width:], h, h.numel(), width, 2 * width, tanh)
        ctx.save_for_backward(both)
        ctx.tanh = tanh
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor) -> tuple[Tensor, None]:
        (both,) = ctx.saved_tensors
        d = torch.empty_like(both)
        width = both.shape[-1] // 2
        _derive(dh.contiguous(), both, both[..., width:], d, d[..., width:], dh.numel(), width, 2 * width, ctx.tanh)
        return d, None


def _activate(gate: Tensor, up: Tensor, h: Tensor, n: int, width: int, stride: int, tanh: bool) -> None:
    if n:
        programs = n // width * -(-width // BLOCK)
        _launch_forward(programs, (gate, up, h), (), (width, stride, tanh, BLOCK), WARPS)


def _derive(
    dh: Tensor, gate: Tensor, up: Tensor, dgate: Tensor, dup: Tensor, n: int, width: int, stride: int, tanh: bool
) -> None:
    if n:
        programs = n // width * -(-width // BLOCK)
        _launch_backward(programs, (dh, gate, up, dgate, dup), (), (width, stride, tanh, BLOCK), WARPS)


@triton.jit
def _sigmoid(gate, TANH: tl.constexpr):
    """sigmoid(z) and its derivative by the gate. From exp(-|z|): nothing overflows, and 1 - sigmoid loses no digits."""
    z = gate
    slope = 1.0
    if TANH:
        z = _SLOPE * (gate + _CUBE * gate * gate * gate)
        slope = _SLOPE * (1.0 + 3.0 * _CUBE * gate * gate)
    small = tl.exp(-tl.abs(z))
    share = 1.0 / (1.0 + small)
    return tl.where(z < 0, small, 1.0) * share, small * share * share * slope


@triton.jit
def dynotune_gated_forward(
    Gate, Up, H, WIDTH: tl.constexpr, STRIDE: tl.constexpr, TANH: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    BLOCKS: tl.constexpr = (WIDTH + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // BLOCKS).to(tl.int64)
    columns = tl.program_id(0) % BLOCKS * BLOCK + tl.arange(0, BLOCK)
    inside = columns < WIDTH
    gate = tl.load(Gate + row * STRIDE + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(Up + row * STRIDE + columns, mask=inside, other=0.0).to(tl.float32)
    sigmoid, _ = _sigmoid(gate, TANH)
    tl.store(H + row * WIDTH + columns, (gate * sigmoid * up).to(H.dtype.element_ty), mask=inside)


@triton.jit
def dynotune_gated_backward(
    Dh, Gate, Up, Dgate, Dup, WIDTH: tl.constexpr, STRIDE: tl.constexpr, TANH: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    BLOCKS: tl.constexpr = (WIDTH + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // BLOCKS).to(tl.int64)
    columns = tl.program_id(0) % BLOCKS * BLOCK + tl.arange(0, BLOCK)
    inside = columns < WIDTH
    dh = tl.load(Dh + row * WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(Gate + row * STRIDE + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(Up + row * STRIDE + columns, mask=inside, other=0.0).to(tl.float32)
    sigmoid, dsigmoid = _sigmoid(gate, TANH)
    tl.store(
        Dgate + row * STRIDE + columns, (dh * up * (sigmoid + gate * dsigmoid)).to(Dgate.dtype.element_ty), mask=inside
    )
    tl.store(Dup + row * STRIDE + columns, (dh * gate * sigmoid).to(Dup.dtype.element_ty), mask=inside)


_launch_forward, _launch_backward = Launch(dynotune_gated_forward), Launch(dynotune_gated_backward)
