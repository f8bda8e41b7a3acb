"""The gated activation that adds LoRA's part of gate, up and its own gradient. Imported only where Triton is wanted.

    h = act(gate + s_g u_g B_g') * (up + s_u u_u B_u')            backward: dh + s_d v_d A_d in the place of dh

gate and up are the outputs of frozen weights, dh the gradient that the frozen weights of the next linear give. Added by
products of their own (`addmm`) each of the three is read and written once more, which takes longer than this whole kernel:
on an H200 at [16384, 18944] 0.49 ms each (`benchmarks/results/h200_profile.json`), where all that a forward kernel moves
takes 0.43. Sums are made in float32 and not rounded in between.

Shazeer, arXiv 2002.05202 (GLU variants), Hu et al., arXiv 2106.09685 (LoRA).
Legend of shapes: T tokens, I intermediate, r rank of one linear, R ranks side by side.
"""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# A kernel's annotations are Triton's language, not Python's.

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.errors import TritonError

from dynotune.model.elementwise.launch import Launch
from dynotune.model.elementwise.triton_gate import _sigmoid
from dynotune.model.lora.left_out import LeftOut

ROWS, COLUMNS, WARPS = 64, 64, 8
"""Of a program's tile. A product of tensor cores has 64 rows at least. Compiled for sm_90 a thread of the backward needs 100
registers, so that two programs fit onto a multiprocessor; with twice the columns 180, and one does."""

LEAST_RANK = 16
"""What a product of tensor cores is deep at least."""

MOST_RANK = 128
"""Above, tiles of low-rank factors leave no room for those of the wide ones, and adding costs what it saves."""

FAILURES = (TritonError,)
"""Raised where a tile does not fit this GPU, besides what any foreign code raises."""


class GatedLora(torch.autograd.Function):
    """`GatedLora.apply(gate, up, u, b_gate, b_up, s_gate, s_up, below, tanh)`, see `forward`. Keeps gate, up and u."""

    @staticmethod
    def forward(
        ctx: Any,
        gate_TI: Tensor,
        up_TI: Tensor,
        u_TR: Tensor,
        b_gate_Ir: Tensor,
        b_up_Ir: Tensor,
        s_gate: float,
        s_up: float,
        below: LeftOut,
        tanh: bool,
    ) -> Tensor:
        """`gate` and `up` [..., I] are without their adapters' parts; u [T, R] holds gate's columns, then up's; all of one
        dtype, b as they are multiplied with. `below`: of the next linear, whose backward leaves out its adapter's part of
        the gradient. Gives [..., I]. u and b get no gradient here: `LoraLinears` gives theirs, from those of gate and up.
        """
        gate_TI, up_TI = gate_TI.contiguous(), up_TI.contiguous()
        b_gate_Ir, b_up_Ir = b_gate_Ir.contiguous(), b_up_Ir.contiguous()
        h_TI = torch.empty_like(gate_TI)
        width, r = gate_TI.shape[-1], b_gate_Ir.shape[1]
        rows = gate_TI.numel() // width
        if rows:
            tensors = (gate_TI, up_TI, u_TR, u_TR[:, r:], b_gate_Ir, b_up_Ir, h_TI)
            constants = (width, u_TR.stride(0), r, b_up_Ir.shape[1], _deep(r), _deep(b_up_Ir.shape[1]), tanh)
            _launch_forward(_programs(rows, width), tensors, (s_gate, s_up, rows), (*constants, ROWS, COLUMNS), WARPS)
        ctx.save_for_backward(gate_TI, up_TI, u_TR, b_gate_Ir, b_up_Ir)
        ctx.scales, ctx.below, ctx.tanh = (s_gate, s_up), below, tanh
        return h_TI

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh_TI: Tensor) -> tuple[Tensor | None, ...]:
        gate_TI, up_TI, u_TR, b_gate_Ir, b_up_Ir = ctx.saved_tensors
        below: LeftOut = ctx.below
        dh_TI = dh_TI.contiguous()
        dgate_TI, dup_TI = torch.empty_like(gate_TI), torch.empty_like(up_TI)
        width, r = gate_TI.shape[-1], b_gate_Ir.shape[1]
        rows = gate_TI.numel() // width
        if below.low_TR is None:  # the next linear was answered for by something else, which left nothing out
            v_Tr, a_rI = dh_TI.new_zeros(rows, LEAST_RANK), dh_TI.new_zeros(LEAST_RANK, width)
        else:
            v_Tr, a_rI = below.low_TR, below.weights[0].contiguous()
        if rows:
            tensors = (
                dh_TI, v_Tr, a_rI, gate_TI, up_TI, u_TR, u_TR[:, r:], b_gate_Ir, b_up_Ir, dgate_TI, dup_TI,
            )  # fmt: skip
            ranks = a_rI.shape[0], r, b_up_Ir.shape[1]
            constants = (width, v_Tr.stride(0), u_TR.stride(0), *ranks, *map(_deep, ranks), ctx.tanh)
            numbers = (below.scale, *ctx.scales, rows)
            _launch_backward(_programs(rows, width), tensors, numbers, (*constants, ROWS, COLUMNS), WARPS)
        below.low_TR, below.weights = None, ()  # what it was is no longer needed
        return dgate_TI, dup_TI, *(None,) * 7


def _programs(rows: int, width: int) -> int:
    return -(-rows // ROWS) * -(-width // COLUMNS)


def _deep(rank: int) -> int:
    """The depth of the product in which a rank lies."""
    return max(LEAST_RANK, int(triton.next_power_of_2(rank)))


@triton.jit
def _low_rank(
    Low, High, rows, columns, ranks, inside, within,
    STRIDE: tl.constexpr, RANK: tl.constexpr, BY_RANK: tl.constexpr, BY_COLUMN: tl.constexpr,
):  # fmt: skip
    """Tile of low [T, r], whose rows are STRIDE apart, times high [r, I], by its strides."""
    there = ranks < RANK
    low = tl.load(Low + rows[:, None] * STRIDE + ranks[None, :], mask=inside[:, None] & there[None, :], other=0.0)
    high = tl.load(
        High + ranks[:, None] * BY_RANK + columns[None, :] * BY_COLUMN, mask=there[:, None] & within[None, :], other=0.0
    )
    return tl.dot(low, high, input_precision="ieee")


@triton.jit(do_not_specialize=["rows"])
def dynotune_gated_lora_forward(
    Gate, Up, Ugate, Uup, Bgate, Bup, H, s_gate, s_up, rows,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, RGATE: tl.constexpr, RUP: tl.constexpr,
    DGATE: tl.constexpr, DUP: tl.constexpr, TANH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    BLOCKS: tl.constexpr = (WIDTH + COLUMNS - 1) // COLUMNS
    row = (tl.program_id(0) // BLOCKS * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    columns = tl.program_id(0) % BLOCKS * COLUMNS + tl.arange(0, COLUMNS)
    inside, within = row < rows, columns < WIDTH
    mask = inside[:, None] & within[None, :]
    place = row[:, None] * WIDTH + columns[None, :]
    gate = tl.load(Gate + place, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(Up + place, mask=mask, other=0.0).to(tl.float32)
    deep_gate, deep_up = tl.arange(0, DGATE), tl.arange(0, DUP)
    gate += s_gate * _low_rank(Ugate, Bgate, row, columns, deep_gate, inside, within, STRIDE, RGATE, 1, RGATE)
    up += s_up * _low_rank(Uup, Bup, row, columns, deep_up, inside, within, STRIDE, RUP, 1, RUP)
    sigmoid, _ = _sigmoid(gate, TANH)
    tl.store(H + place, (gate * sigmoid * up).to(H.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def dynotune_gated_lora_backward(
    Dh, V, A, Gate, Up, Ugate, Uup, Bgate, Bup, Dgate, Dup, s_down, s_gate, s_up, rows,
    WIDTH: tl.constexpr, VSTRIDE: tl.constexpr, STRIDE: tl.constexpr,
    RDOWN: tl.constexpr, RGATE: tl.constexpr, RUP: tl.constexpr,
    DDOWN: tl.constexpr, DGATE: tl.constexpr, DUP: tl.constexpr,
    TANH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    BLOCKS: tl.constexpr = (WIDTH + COLUMNS - 1) // COLUMNS
    row = (tl.program_id(0) // BLOCKS * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    columns = tl.program_id(0) % BLOCKS * COLUMNS + tl.arange(0, COLUMNS)
    inside, within = row < rows, columns < WIDTH
    mask = inside[:, None] & within[None, :]
    place = row[:, None] * WIDTH + columns[None, :]
    dh = tl.load(Dh + place, mask=mask, other=0.0).to(tl.float32)
    gate = tl.load(Gate + place, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(Up + place, mask=mask, other=0.0).to(tl.float32)
    deep_down, deep_gate, deep_up = tl.arange(0, DDOWN), tl.arange(0, DGATE), tl.arange(0, DUP)
    dh += s_down * _low_rank(V, A, row, columns, deep_down, inside, within, VSTRIDE, RDOWN, WIDTH, 1)
    gate += s_gate * _low_rank(Ugate, Bgate, row, columns, deep_gate, inside, within, STRIDE, RGATE, 1, RGATE)
    up += s_up * _low_rank(Uup, Bup, row, columns, deep_up, inside, within, STRIDE, RUP, 1, RUP)
    sigmoid, dsigmoid = _sigmoid(gate, TANH)
    tl.store(Dgate + place, (dh * up * (sigmoid + gate * dsigmoid)).to(Dgate.dtype.element_ty), mask=mask)
    tl.store(Dup + place, (dh * gate * sigmoid).to(Dup.dtype.element_ty), mask=mask)


_launch_forward, _launch_backward = Launch(dynotune_gated_lora_forward), Launch(dynotune_gated_lora_backward)
