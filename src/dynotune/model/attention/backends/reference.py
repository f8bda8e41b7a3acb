"""Exact attention, one segment after another: any device, dtype, window and soft-cap. Never more than n x n of a segment.

Legend of shapes: T tokens of the row, n tokens of a segment, H heads, K key and value heads, D head dimension.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def attend(
    query_HTD: Tensor,
    key_KTD: Tensor,
    value_KTD: Tensor,
    lengths: tuple[int, ...],
    scaling: float,
    sliding_window: int | None,
    softcap: float | None,
) -> Tensor:
    """Causal attention [T, H, D] within each of the segments, whose `lengths` add up to T."""
    assert sum(lengths) == query_HTD.shape[1], (lengths, query_HTD.shape)
    shared = query_HTD.shape[0] // key_KTD.shape[0]
    if shared > 1:
        key_KTD, value_KTD = key_KTD.repeat_interleave(shared, 0), value_KTD.repeat_interleave(shared, 0)
    parts: list[Tensor] = []
    for q, k, v in zip(*(x.split(lengths, dim=1) for x in (query_HTD, key_KTD, value_KTD)), strict=True):
        cut = sliding_window is not None and q.shape[1] > sliding_window
        if softcap is None and not cut:
            # With a batch of one, as transformers calls it: the same kernel gives the same numbers.
            part = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, scale=scaling)[0]
        else:
            part = _by_hand(q, k, v, scaling, sliding_window if cut else None, softcap)
        parts.append(part)
    return torch.cat(parts, dim=1).transpose(0, 1).contiguous()  # some models view it in another shape


def _by_hand(
    query_HnD: Tensor, key_HnD: Tensor, value_HnD: Tensor, scaling: float, window: int | None, softcap: float | None
) -> Tensor:
    """Written out: torch's masked attention is wrong in some 16-bit backward passes (pytorch issue 196678)."""
    scores_Hnn = query_HnD @ key_HnD.transpose(1, 2) * scaling
    if softcap is not None:
        scores_Hnn = softcap * torch.tanh(scores_Hnn / softcap)
    n = query_HnD.shape[1]
    seen_nn = torch.ones(n, n, dtype=torch.bool, device=query_HnD.device).tril()
    if window is not None:
        seen_nn = seen_nn.triu(1 - window)
    precision = torch.promote_types(scores_Hnn.dtype, torch.float32)
    weights_Hnn = scores_Hnn.masked_fill(~seen_nn, float("-inf")).softmax(-1, dtype=precision)
    return weights_Hnn.to(value_HnD.dtype) @ value_HnD
