"""FlexAttention, compiled: part of PyTorch, made by its compiler for this model's shapes.

Which blocks of keys each block of queries needs is computed from the boundaries on the device, once a micro-batch and
window, in shapes that depend on the token count alone: no T x T mask, no wait, and nothing is compiled again for another
packing.

Legend of shapes: T tokens of the row, S segments, H heads, K key and value heads, D head dimension, B blocks of the row,
R rows of keys, C blocks of them; without gathered keys R = T.
"""

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dynotune.model.attention.backends.backend import Asked, why_no_flash
from dynotune.model.attention.segments import Keys, Segments

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

WORDS = "FlexAttention"
ANY_SIZES = False
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
    tokens, gathered = sum(segments.lengths), segments.gathered
    rows = tokens if gathered is None else len(gathered.rows_R)
    return {
        window: block_mask(segments.boundaries_S1, tokens, window, segments.keys, rows) for window in _windows(decoder)
    }


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
    keys: Keys | None = None,
) -> Tensor:
    """As `Kernel.attend`."""
    mask = (plan or {}).get(window)
    if mask is None:
        mask = block_mask(boundaries_S1, query_THD.shape[0], window, keys, key_TKD.shape[0])
    query, key, value = (x.transpose(0, 1)[None] for x in (query_THD, key_TKD, value_TKD))
    out: Tensor = _attention()(
        query, key, value, score_mod=_capping(softcap), block_mask=mask, scale=scaling, enable_gqa=True
    )
    return out[0].transpose(0, 1)


def block_mask(
    boundaries_S1: Tensor, tokens: int, window: int | None, keys: Keys | None = None, rows: int | None = None
) -> "BlockMask":
    """The causal mask within segments and `window`, with the blocks that it touches and those that it leaves whole.

    keys: segments of the keys, of which there are `rows`, where they are not those of the queries.
    """
    from torch.nn.attention.flex_attention import BlockMask

    device, rows = boundaries_S1.device, tokens if rows is None else rows
    key_boundaries_S1 = boundaries_S1 if keys is None else keys.boundaries_S1
    token_T = torch.arange(tokens, device=device, dtype=torch.int32)
    segment_T = torch.searchsorted(boundaries_S1[1:], token_T, right=True)
    # Keys that a token sees: the last query of a segment its last key.
    last_T = token_T + (key_boundaries_S1 - boundaries_S1)[1:][segment_T]
    start_T = key_boundaries_S1[segment_T]
    first_T = start_T if window is None else torch.maximum(start_T, last_T - (window - 1))

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= last_T[query]) & (key >= first_T[query])

    opening_B, closing_B = _blocks(tokens, device)
    opening_C, closing_C = _blocks(rows, device)
    # Keys that a row may see only move on from row to row, so that a block's first and last row bound it.
    touched_BC = (opening_C[None] <= last_T[closing_B][:, None]) & (closing_C[None] >= first_T[opening_B][:, None])
    whole_BC = (closing_C[None] <= last_T[opening_B][:, None]) & (opening_C[None] >= first_T[closing_B][:, None])
    # A block that ends early is masked.
    whole_BC &= (closing_B - opening_B == BLOCK - 1)[:, None] & (closing_C - opening_C == BLOCK - 1)[None]
    part, whole = _rows(touched_BC & ~whole_BC), _rows(whole_BC)
    return BlockMask.from_kv_blocks(*part, *whole, BLOCK_SIZE=BLOCK, mask_mod=seen, seq_lengths=(tokens, rows))


def _blocks(rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """First and last row of each block of `rows`."""
    opening_B = torch.arange(-(-rows // BLOCK), device=device, dtype=torch.int32) * BLOCK
    return opening_B, (opening_B + BLOCK).clamp(max=rows) - 1


def _rows(which_BC: Tensor) -> tuple[Tensor, Tensor]:
    """How many, and which, columns of each row are set: int32 [1, 1, B] and [1, 1, B, C], those first, in order."""
    order_BC = torch.argsort(which_BC.int(), dim=1, descending=True, stable=True)
    return which_BC.sum(1, dtype=torch.int32)[None, None], order_BC.int().contiguous()[None, None]


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
