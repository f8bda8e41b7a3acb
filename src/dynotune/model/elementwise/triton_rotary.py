"""Rotary embedding of query and key in one Triton kernel, and its adjoint in another launch of the same kernel.

Su et al., arXiv 2104.09864, in the layout of two halves: out = x * cos + [-x2, x1] * sin. Imported only where Triton is
wanted. Legend of shapes: B rows of the batch, T tokens, H heads, K key heads, D head dimension.
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
from dynotune.model.elementwise.rotary import fits

WARPS = 4


class Rotary(torch.autograd.Function):
    """`Rotary.apply(query, key, cos, sin)` gives both rotated. Keeps cos and sin, which all layers share."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, low: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        """`query` [B, H, T, D] and `key` [B, K, T, D] that `fits` says yes to; `cos` and `sin` [B, T, D] or [1, T, D].

        Gives both in the dtype that torch promotes to, rounded to `low` where that is given; the heads of a token lie beside
        each other in memory.
        """
        out = low or torch.promote_types(query.dtype, cos.dtype)
        cos, sin = cos.contiguous(), sin.contiguous()
        rotated = _rotate(query, key, cos, sin, out, False)
        ctx.save_for_backward(cos, sin)
        ctx.dtype = query.dtype
        return rotated

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dquery: Tensor, dkey: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        dquery, dkey = (g if fits(g) else g.transpose(1, 2).contiguous().transpose(1, 2) for g in (dquery, dkey))
        return *_rotate(dquery, dkey, cos, sin, ctx.dtype, True), None, None, None


def _rotate(
    query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, out: torch.dtype, adjoint: bool
) -> tuple[Tensor, Tensor]:
    batch, heads, tokens, d = query.shape
    key_heads = key.shape[1]
    strides = (tokens * heads * d, d, heads * d, 1), (tokens * key_heads * d, d, key_heads * d, 1)
    rotated = (
        query.new_empty_strided(query.shape, strides[0], dtype=out),
        key.new_empty_strided(key.shape, strides[1], dtype=out),
    )
    if batch * tokens:
        constants = (
            heads,
            key_heads,
            d // 2,
            adjoint,
            query.stride(2),
            key.stride(2),
            *_blocks(heads, key_heads, d // 2),
        )
        _launch(batch * tokens, (query, key, cos, sin, *rotated), (cos.shape[0] * tokens,), constants, WARPS)
    return rotated


@cache
def _blocks(*sizes: int) -> tuple[int, ...]:
    return tuple(triton.next_power_of_2(size) for size in sizes)


@triton.jit
def _heads(
    X, Out, cos1, cos2, sin1, sin2, token,
    STRIDE: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr, ADJOINT: tl.constexpr, HEADS2: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    heads = tl.arange(0, HEADS2)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    inside = (heads < HEADS) & (columns < HALF)
    x = X + token * STRIDE + heads * (2 * HALF) + columns
    x1 = tl.load(x, mask=inside, other=0.0).to(tl.float32)
    x2 = tl.load(x + HALF, mask=inside, other=0.0).to(tl.float32)
    if ADJOINT:
        y1 = x1 * cos1 + x2 * sin2
        y2 = x2 * cos2 - x1 * sin1
    else:
        y1 = x1 * cos1 - x2 * sin1
        y2 = x2 * cos2 + x1 * sin2
    out = Out + token * (HEADS * 2 * HALF) + heads * (2 * HALF) + columns
    tl.store(out, y1.to(Out.dtype.element_ty), mask=inside)
    tl.store(out + HALF, y2.to(Out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["tables"])
def dynotune_rotary(
    Query, Key, Cos, Sin, QueryOut, KeyOut, tables,
    H: tl.constexpr, K: tl.constexpr, HALF: tl.constexpr, ADJOINT: tl.constexpr,
    QUERY_STRIDE: tl.constexpr, KEY_STRIDE: tl.constexpr,
    H2: tl.constexpr, K2: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)[None, :]
    inside = columns < HALF
    at = token % tables * (2 * HALF) + columns
    cos1 = tl.load(Cos + at, mask=inside, other=0.0).to(tl.float32)
    cos2 = tl.load(Cos + at + HALF, mask=inside, other=0.0).to(tl.float32)
    sin1 = tl.load(Sin + at, mask=inside, other=0.0).to(tl.float32)
    sin2 = tl.load(Sin + at + HALF, mask=inside, other=0.0).to(tl.float32)
    _heads(Query, QueryOut, cos1, cos2, sin1, sin2, token, QUERY_STRIDE, H, HALF, ADJOINT, H2, BLOCK)
    _heads(Key, KeyOut, cos1, cos2, sin1, sin2, token, KEY_STRIDE, K, HALF, ADJOINT, K2, BLOCK)


_launch = Launch(dynotune_rotary)
