"""The gated activation that adds LoRA's part of gate, up and its own gradient. Imported only where Triton is wanted.

    h = act(gate + s_g u_g B_g') * (up + s_u u_u B_u')            backward: dh + s_d v_d A_d in the place of dh
    dB_g = s_g dgate' u_g        dB_u = s_u dup' u_u              dA_d = s_d v_d' h

gate and up are the outputs of frozen weights, dh the gradient that the frozen weights of the next linear give. Added by
products of their own (`addmm`) each of the three sums reads and writes a wide tensor once more, and each of the three
gradients of the adapters reads one. On an H200 at [16384, 18944] that is 0.5 ms a sum and 0.16 ms a gradient, where all
that the plain kernels of the activation take is 0.43 and 0.72 ms; these take 0.49 and 0.97 with everything in them
(`benchmarks/results/h200_lora_in_activation.json`). h is made again for its gradient and need not be kept.
Sums are made in float32 and not rounded in between.

A program stays in its columns and goes down the rows: B and A are read once, tiles of the wide tensors are on their way
while others are computed, and the adapters' gradients stay in registers to the end. A grid's parts are summed after that.

Shazeer, arXiv 2002.05202 (GLU variants), Hu et al., arXiv 2106.09685 (LoRA).
Legend of shapes: T tokens, I intermediate, r rank of one linear, R ranks side by side, P parts of the rows.
"""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# A kernel's annotations are Triton's language, not Python's.

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.errors import TritonError

from dynotune.model.elementwise.launch import Launch
from dynotune.model.elementwise.triton_gate import _sigmoid
from dynotune.model.lora.left_out import LeftOut


class Tile(NamedTuple):
    """Of a program: rows and columns of what it computes at a time, warps, and how many such are on their way."""

    rows: int
    columns: int
    warps: int
    stages: int


FORWARD, BACKWARD = Tile(64, 64, 8, 3), Tile(32, 64, 4, 3)
"""The fastest of 13 and 15 on an H200 at rank 32, of 16,384 tokens and of 2,112. Compiled for sm_90 a thread of the
backward needs 168 registers, so that three programs fit onto a multiprocessor."""

DEEP_BACKWARD = Tile(32, 64, 8, 3)
"""At ranks above 32, where sums of the adapters' gradients would not fit into the registers of four warps: compiled for
sm_80 a thread of these would spill 804 bytes at rank 64. Not timed."""

WHOLE = Tile(16, 32, 8, 1)
"""In float32, whose products are made without tensor cores."""

PROGRAMS = 1184
"""Of a grid, about: three waves of three a multiprocessor of an H200. Rows are parted until there are so many."""

LEAST_ROWS = 512
"""Of a part: with fewer, reading A and B and writing gradients' parts is what takes the time."""

MOST_ELEMENTS = 1 << 30
"""Of a part of a wide tensor: within it places are counted in 32 bits."""

LEAST_RANK = 16
"""What a product of tensor cores is deep at least."""

FAILURES = (TritonError,)
"""Raised where a tile does not fit this GPU, besides what any foreign code raises."""


class GatedLora(torch.autograd.Function):
    """`GatedLora.apply(gate, up, u, b_gate, b_up, B_gate, B_up, A_down, s_gate, s_up, below, tanh)`, see `forward`. Keeps
    gate, up and u."""

    @staticmethod
    def forward(
        ctx: Any,
        gate_TI: Tensor,
        up_TI: Tensor,
        u_TR: Tensor,
        b_gate_Ir: Tensor,
        b_up_Ir: Tensor,
        B_gate_Ir: Tensor,
        B_up_Ir: Tensor,
        A_down_rI: Tensor,
        s_gate: float,
        s_up: float,
        below: LeftOut,
        tanh: bool,
    ) -> Tensor:
        """`gate` and `up` [..., I] are without their adapters' parts; u [T, R] holds gate's columns, then up's; all of one
        dtype, b as they are multiplied with. `below`: of the next linear, whose backward leaves out its adapter's part of
        the gradient. Gives [..., I]. B and A are what is trained: they get the gradients, in their own dtype, that
        `LoraLinears` would give them; u and b get none, since `LoraLinears` gives that of u from those of gate and up.
        """
        gate_TI, up_TI = gate_TI.contiguous(), up_TI.contiguous()
        b_gate_Ir, b_up_Ir = b_gate_Ir.contiguous(), b_up_Ir.contiguous()
        h_TI = torch.empty_like(gate_TI)
        width, r = gate_TI.shape[-1], b_gate_Ir.shape[1]
        rows = gate_TI.numel() // width
        if rows:
            tile = FORWARD if gate_TI.element_size() == 2 else WHOLE
            parts, per = _parts(rows, width, tile, 2 * PROGRAMS)
            tensors = (gate_TI, up_TI, u_TR, u_TR[:, r:], b_gate_Ir, b_up_Ir, h_TI)
            constants = (width, u_TR.stride(0), r, b_up_Ir.shape[1], _deep(r), _deep(b_up_Ir.shape[1]), tanh)
            tiled = (tile.rows, tile.columns, tile.stages)
            programs = parts * -(-width // tile.columns)
            _launch_forward(programs, tensors, (s_gate, s_up, rows, per), (*constants, *tiled), tile.warps)
        ctx.save_for_backward(gate_TI, up_TI, u_TR, b_gate_Ir, b_up_Ir, B_gate_Ir, B_up_Ir, A_down_rI)
        ctx.scales, ctx.below, ctx.tanh = (s_gate, s_up), below, tanh
        return h_TI

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh_TI: Tensor) -> tuple[Tensor | None, ...]:
        gate_TI, up_TI, u_TR, b_gate_Ir, b_up_Ir, *trained = ctx.saved_tensors
        below: LeftOut = ctx.below
        dh_TI = dh_TI.contiguous()
        dgate_TI, dup_TI = torch.empty_like(gate_TI), torch.empty_like(up_TI)
        width, r = gate_TI.shape[-1], b_gate_Ir.shape[1]
        rows = gate_TI.numel() // width
        needed = list(ctx.needs_input_grad[5:8])
        if below.low_TR is None:  # the next linear was answered for by something else, which left nothing out
            v_Tr, a_rI = dh_TI.new_zeros(rows, LEAST_RANK), dh_TI.new_zeros(LEAST_RANK, width)
            needed[2] = False
        else:
            v_Tr, a_rI = below.low_TR, below.weights[0].contiguous()
        ranks = a_rI.shape[0], r, b_up_Ir.shape[1]
        deep = tuple(map(_deep, ranks))
        tile = WHOLE if gate_TI.element_size() != 2 else DEEP_BACKWARD if max(deep) > 32 else BACKWARD
        parts, per = _parts(rows, width, tile, PROGRAMS)
        reduces = any(needed)
        # Each part's own sums, of B of gate, B of up and A of down; nothing is read of them where there are no rows.
        sizes = [width * rank if reduces else 0 for rank in (ranks[1], ranks[2], ranks[0])]
        sums_Pn = dh_TI.new_empty(parts, sum(sizes), dtype=torch.float32) if rows else dh_TI.new_zeros(1, sum(sizes))
        if rows:
            tensors = (
                dh_TI, v_Tr, a_rI, gate_TI, up_TI, u_TR, u_TR[:, r:], b_gate_Ir, b_up_Ir, dgate_TI, dup_TI, sums_Pn,
            )  # fmt: skip
            constants = (width, v_Tr.stride(0), u_TR.stride(0), *ranks, *deep, reduces, ctx.tanh)
            numbers = (below.scale, *ctx.scales, rows, per)
            tiled = (tile.rows, tile.columns, tile.stages)
            programs = parts * -(-width // tile.columns)
            _launch_backward(programs, tensors, numbers, (*constants, *tiled), tile.warps)
        below.low_TR, below.weights = None, ()  # what it was is no longer needed
        found: list[Tensor | None] = [None] * 3
        if reduces:
            sums_n = sums_Pn.sum(0) if len(sums_Pn) > 1 else sums_Pn[0]
            each = zip(sums_n.split(sizes), trained, needed, strict=True)
            found = [one.view(of.shape).to(of.dtype) if wanted else None for one, of, wanted in each]
        return dgate_TI, dup_TI, None, None, None, *found, None, None, None, None


def _parts(rows: int, width: int, tile: Tile, programs: int) -> tuple[int, int]:
    """How many parts the rows go in, and rows of each."""
    parts = max(1, min(-(-rows // LEAST_ROWS), round(programs / -(-width // tile.columns))))
    parts = max(parts, -(-rows * width // MOST_ELEMENTS))
    per = -(-rows // (parts * 16)) * 16
    return -(-rows // per) if rows else 1, per


def _deep(rank: int) -> int:
    """The depth of the product in which a rank lies."""
    return max(LEAST_RANK, int(triton.next_power_of_2(rank)))


@triton.jit
def _own(rows, per, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    """A program's columns, which of them there are, its part of the rows, the part's first row and how many it has."""
    BLOCKS: tl.constexpr = (WIDTH + COLUMNS - 1) // COLUMNS
    columns = tl.program_id(0) % BLOCKS * COLUMNS + tl.arange(0, COLUMNS)
    part = (tl.program_id(0) // BLOCKS).to(tl.int64)
    first = part * per
    return columns, columns < WIDTH, part, first, tl.minimum(rows - first, per).to(tl.int32)


@triton.jit
def _low_rank(
    Low, rows, ranks, inside, STRIDE: tl.constexpr, RANK: tl.constexpr
):  # fmt: skip
    """Tile of low [T, r], whose rows are STRIDE apart."""
    return tl.load(
        Low + rows[:, None] * STRIDE + ranks[None, :], mask=inside[:, None] & (ranks < RANK)[None, :], other=0.0
    )


@triton.jit
def _high(High, columns, ranks, within, RANK: tl.constexpr, BY_RANK: tl.constexpr, BY_COLUMN: tl.constexpr):
    """Tile of high [r, I], by its strides."""
    return tl.load(
        High + ranks[:, None] * BY_RANK + columns[None, :] * BY_COLUMN,
        mask=(ranks < RANK)[:, None] & within[None, :], other=0.0,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "per"])
def dynotune_gated_lora_forward(
    Gate, Up, Ugate, Uup, Bgate, Bup, H, s_gate, s_up, rows, per,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, RGATE: tl.constexpr, RUP: tl.constexpr,
    DGATE: tl.constexpr, DUP: tl.constexpr, TANH: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    columns, within, _part, first, count = _own(rows, per, WIDTH, COLUMNS)
    ranks_gate, ranks_up = tl.arange(0, DGATE), tl.arange(0, DUP)
    b_gate = _high(Bgate, columns, ranks_gate, within, RGATE, 1, RGATE)
    b_up = _high(Bup, columns, ranks_up, within, RUP, 1, RUP)
    # What lies behind `first` is counted in 32 bits, which spares registers.
    Gate += first * WIDTH
    Up += first * WIDTH
    H += first * WIDTH
    Ugate += first * STRIDE
    Uup += first * STRIDE
    row = tl.arange(0, ROWS)
    place = row[:, None] * WIDTH + columns[None, :]
    for start in tl.range(0, count, ROWS, num_stages=STAGES):
        inside = row < count - start
        mask = inside[:, None]
        if WIDTH % COLUMNS:
            mask = mask & within[None, :]
        u_gate = _low_rank(Ugate + start * STRIDE, row, ranks_gate, inside, STRIDE, RGATE)
        u_up = _low_rank(Uup + start * STRIDE, row, ranks_up, inside, STRIDE, RUP)
        gate = tl.load(Gate + start * WIDTH + place, mask=mask, other=0.0)
        up = tl.load(Up + start * WIDTH + place, mask=mask, other=0.0)
        gate = gate.to(tl.float32) + s_gate * tl.dot(u_gate, b_gate, input_precision="ieee")
        up = up.to(tl.float32) + s_up * tl.dot(u_up, b_up, input_precision="ieee")
        sigmoid, _ = _sigmoid(gate, TANH)
        tl.store(H + start * WIDTH + place, (gate * sigmoid * up).to(H.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows", "per"])
def dynotune_gated_lora_backward(
    Dh, V, A, Gate, Up, Ugate, Uup, Bgate, Bup, Dgate, Dup, Sums, s_down, s_gate, s_up, rows, per,
    WIDTH: tl.constexpr, VSTRIDE: tl.constexpr, STRIDE: tl.constexpr,
    RDOWN: tl.constexpr, RGATE: tl.constexpr, RUP: tl.constexpr,
    DDOWN: tl.constexpr, DGATE: tl.constexpr, DUP: tl.constexpr, REDUCES: tl.constexpr,
    TANH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    columns, within, part, first, count = _own(rows, per, WIDTH, COLUMNS)
    ranks_down, ranks_gate, ranks_up = tl.arange(0, DDOWN), tl.arange(0, DGATE), tl.arange(0, DUP)
    a_down = _high(A, columns, ranks_down, within, RDOWN, WIDTH, 1)
    b_gate = _high(Bgate, columns, ranks_gate, within, RGATE, 1, RGATE)
    b_up = _high(Bup, columns, ranks_up, within, RUP, 1, RUP)
    Dh += first * WIDTH
    Gate += first * WIDTH
    Up += first * WIDTH
    Dgate += first * WIDTH
    Dup += first * WIDTH
    V += first * VSTRIDE
    Ugate += first * STRIDE
    Uup += first * STRIDE
    row = tl.arange(0, ROWS)
    place = row[:, None] * WIDTH + columns[None, :]
    into_gate = tl.zeros([COLUMNS, DGATE], tl.float32)
    into_up = tl.zeros([COLUMNS, DUP], tl.float32)
    into_down = tl.zeros([COLUMNS, DDOWN], tl.float32)
    for start in tl.range(0, count, ROWS, num_stages=STAGES):
        inside = row < count - start
        mask = inside[:, None]
        if WIDTH % COLUMNS:
            mask = mask & within[None, :]
        u_gate = _low_rank(Ugate + start * STRIDE, row, ranks_gate, inside, STRIDE, RGATE)
        u_up = _low_rank(Uup + start * STRIDE, row, ranks_up, inside, STRIDE, RUP)
        v = _low_rank(V + start * VSTRIDE, row, ranks_down, inside, VSTRIDE, RDOWN)
        gate = tl.load(Gate + start * WIDTH + place, mask=mask, other=0.0)
        up = tl.load(Up + start * WIDTH + place, mask=mask, other=0.0)
        dh = tl.load(Dh + start * WIDTH + place, mask=mask, other=0.0)
        gate = gate.to(tl.float32) + s_gate * tl.dot(u_gate, b_gate, input_precision="ieee")
        up = up.to(tl.float32) + s_up * tl.dot(u_up, b_up, input_precision="ieee")
        dh = dh.to(tl.float32) + s_down * tl.dot(v, a_down, input_precision="ieee")
        sigmoid, slope = _sigmoid(gate, TANH)
        activated = gate * sigmoid
        dgate = (dh * up * (sigmoid + gate * slope)).to(Dgate.dtype.element_ty)
        dup = (dh * activated).to(Dup.dtype.element_ty)
        tl.store(Dgate + start * WIDTH + place, dgate, mask=mask)
        tl.store(Dup + start * WIDTH + place, dup, mask=mask)
        if REDUCES:
            h = (activated * up).to(Dup.dtype.element_ty)  # rounded as down was given it
            into_gate = tl.dot(tl.trans(dgate), u_gate, into_gate, input_precision="ieee")
            into_up = tl.dot(tl.trans(dup), u_up, into_up, input_precision="ieee")
            into_down = tl.dot(tl.trans(h), v, into_down, input_precision="ieee")
    if REDUCES:
        Sums += part * WIDTH * (RGATE + RUP + RDOWN)
        mask_gate = within[:, None] & (ranks_gate < RGATE)[None, :]
        mask_up = within[:, None] & (ranks_up < RUP)[None, :]
        mask_down = within[:, None] & (ranks_down < RDOWN)[None, :]
        tl.store(Sums + columns[:, None] * RGATE + ranks_gate[None, :], s_gate * into_gate, mask=mask_gate)
        Sums += WIDTH * RGATE
        tl.store(Sums + columns[:, None] * RUP + ranks_up[None, :], s_up * into_up, mask=mask_up)
        Sums += WIDTH * RUP
        tl.store(Sums + columns[:, None] + ranks_down[None, :] * WIDTH, s_down * into_down, mask=mask_down)


_launch_forward, _launch_backward = Launch(dynotune_gated_lora_forward), Launch(dynotune_gated_lora_backward)
