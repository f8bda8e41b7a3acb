"""FlexAttention, compiled: part of PyTorch, made by its compiler for this model's shapes.

Which blocks of keys each block of queries needs is computed from the boundaries on the device, once a micro-batch and
window, in shapes that depend on the token count alone: no T x T mask, no wait, and nothing is compiled again for another
packing.

Legend of shapes: T tokens of the row, S segments, H heads, K key and value heads, D head dimension, B blocks of the row.
"""

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dynotune.model.attention.backends.backend import Asked, why_no_flash
from dynotune.model.attention.segments import Segments

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

WORDS = "FlexAttention"
BLOCK = 128
"""Tokens of a block. Compiled kernels need a multiple of their own tiles, which this is."""

KERNELS = 64
"""How many are compiled at most: one for each token count, window, and whether gradients are wanted."""

Plan = dict[int | None, "BlockMask"]
"""A mask for each window of the model."""


def limits(asked: Asked) -> str | None:
    """As `Kernel.limits`."""
    reason = why_no_flash(asked, capability=(8, 0), softcap=True)
    if reason is None and asked.head_dim & (asked.head_dim - 1):
        return f"the kernel takes head dimensions that are powers of two, not {asked.head_dim}"
    return reason


def missing() -> None:
    """It is part of PyTorch."""


def prepare(segments: Segments, decoder: nn.Module) -> Plan:
    """The masks of a micro-batch, for all windows that the model's layers speak of."""
    boundaries_S1, tokens = segments.boundaries_S1, sum(segments.lengths)
    return {window: block_mask(boundaries_S1, tokens, window) for window in _windows(decoder)}


def attend(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    boundaries_S1: Tensor,
    longest: int,
    scaling: float,
    window: int | None,
    softcap: float | None,
    plan: Plan | None,
) -> Tensor:
    """As `Kernel.attend`."""
    mask = (plan or {}).get(window)
    if mask is None:
        mask = block_mask(boundaries_S1, query_THD.shape[0], window)
    query, key, value = (x.transpose(0, 1)[None] for x in (query_THD, key_TKD, value_TKD))
    out: Tensor = _attention()(
        query, key, value, score_mod=_capping(softcap), block_mask=mask, scale=scaling, enable_gqa=True
    )
    return out[0].transpose(0, 1)


def block_mask(boundaries_S1: Tensor, tokens: int, window: int | None) -> "BlockMask":
    """The causal mask within segments and `window`, with the blocks that it touches and those that it leaves whole."""
    from torch.nn.attention.flex_attention import BlockMask

    device = boundaries_S1.device
    token_T = torch.arange(tokens, device=device, dtype=torch.int32)
    segment_T = torch.searchsorted(boundaries_S1[1:], token_T, right=True)
    start_T = boundaries_S1[segment_T]  # of the token's segment
    first_T = start_T if window is None else torch.maximum(start_T, token_T - (window - 1))  # key that a token sees

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (key >= first_T[query])

    blocks = -(-tokens // BLOCK)
    at_B = torch.arange(blocks, device=device, dtype=torch.int32)
    opening_B, closing_B = at_B * BLOCK, ((at_B + 1) * BLOCK).clamp(max=tokens) - 1
    # Keys that a row may see only move on from row to row, so that a block's first and last row bound it.
    touched_BB = (at_B[None] <= at_B[:, None]) & (closing_B[None] >= first_T[opening_B][:, None])
    whole_BB = (closing_B[None] <= opening_B[:, None]) & (opening_B[None] >= first_T[closing_B][:, None])
    whole_BB &= (at_B < tokens // BLOCK)[:, None]  # a block that ends early is masked
    part, whole = _rows(touched_BB & ~whole_BB), _rows(whole_BB)
    return BlockMask.from_kv_blocks(*part, *whole, BLOCK_SIZE=BLOCK, mask_mod=seen, seq_lengths=(tokens, tokens))


def _rows(which_BB: Tensor) -> tuple[Tensor, Tensor]:
    """How many, and which, columns of each row are set: int32 [1, 1, B] and [1, 1, B, B], those first, in order."""
    order_BB = torch.argsort(which_BB.int(), dim=1, descending=True, stable=True)
    return which_BB.sum(1, dtype=torch.int32)[None, None], order_BB.int().contiguous()[None, None]


def _windows(decoder: nn.Module) -> set[int | None]:
    found: set[int | None] = {None}
    for module in decoder.modules():
        window = getattr(module, "sliding_window", None)
        if isinstance(window, int) and not isinstance(window, bool) and window > 0:
            found.add(window)
    return found


def _capping(softcap: float | None) -> Any:
    if softcap is None:
        return None

    def capped(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return softcap * torch.tanh(score / softcap)

    return capped


def _attention() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention if torch.compiler.is_compiling() else _compiled()  # compiled layers compile it with them


@cache
def _compiled() -> Any:
    """Token counts of the ladder are few and static: a kernel for each, rather than a slower one for all.

    Whole, so that what cannot be compiled is an error: uncompiled it makes all T x T scores.
    """
    from torch.nn.attention.flex_attention import flex_attention

    if "recompile_limit" in inspect.signature(torch.compile).parameters:
        more: dict[str, Any] = {"recompile_limit": KERNELS}
        return torch.compile(flex_attention, dynamic=False, fullgraph=True, **more)
    raised = torch._dynamo.config.patch(recompile_limit=KERNELS)
    return raised(torch.compile(flex_attention, dynamic=False, fullgraph=True))
