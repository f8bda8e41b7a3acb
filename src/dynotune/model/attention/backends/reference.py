"""Exact attention, one segment after another: any device, dtype, window and soft-cap. Never more than q x n of a segment.

Legend of shapes: T tokens of the row, R rows of keys (T without gathered ones), q queries and n keys of a segment, H heads,
K key and value heads, D head dimension.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def attend(
    query_HTD: Tensor,
    key_KRD: Tensor,
    value_KRD: Tensor,
    lengths: tuple[int, ...],
    scaling: float,
    sliding_window: int | None,
    softcap: float | None,
    key_lengths: tuple[int, ...] | None = None,
) -> Tensor:
    """Causal attention [T, H, D] within each of the segments, whose `lengths` add up to T.

    key_lengths: keys of each segment, which add up to R, where they are more than its queries. The last query of a segment
    sees its last key.
    """
    key_lengths = lengths if key_lengths is None else key_lengths
    assert sum(lengths) == query_HTD.shape[1], (lengths, query_HTD.shape)
    assert sum(key_lengths) == key_KRD.shape[1], (key_lengths, key_KRD.shape)
    shared = query_HTD.shape[0] // key_KRD.shape[0]
    if shared > 1:
        key_KRD, value_KRD = key_KRD.repeat_interleave(shared, 0), value_KRD.repeat_interleave(shared, 0)
    parts: list[Tensor] = []
    segments = query_HTD.split(lengths, dim=1), key_KRD.split(key_lengths, dim=1), value_KRD.split(key_lengths, dim=1)
    for q, k, v in zip(*segments, strict=True):
        cut = sliding_window is not None and k.shape[1] > sliding_window
        if softcap is None and not cut and q.shape[1] == k.shape[1]:
            # With a batch of one, as transformers calls it: the same kernel gives the same numbers.
            part = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, scale=scaling)[0]
        else:
            part = _by_hand(q, k, v, scaling, sliding_window if cut else None, softcap)
        parts.append(part)
    return torch.cat(parts, dim=1).transpose(0, 1).contiguous()  # some models view it in another shape


def seen_by(queries: int, keys: int, window: int | None, device: torch.device) -> Tensor:
    """Whether each query of a segment sees each key: bool [q, n], aligned at the last of both."""
    seen_qn = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
    return seen_qn if window is None else seen_qn.triu(keys - queries + 1 - window)


def _by_hand(
    query_HqD: Tensor, key_HnD: Tensor, value_HnD: Tensor, scaling: float, window: int | None, softcap: float | None
) -> Tensor:
    """Written out: torch's masked attention is wrong in some 16-bit backward passes (pytorch issue 196678)."""
    scores_Hqn = query_HqD @ key_HnD.transpose(1, 2) * scaling
    if softcap is not None:
        scores_Hqn = softcap * torch.tanh(scores_Hqn / softcap)
    seen_qn = seen_by(query_HqD.shape[1], key_HnD.shape[1], window, query_HqD.device)
    precision = torch.promote_types(scores_Hqn.dtype, torch.float32)
    weights_Hqn = scores_Hqn.masked_fill(~seen_qn, float("-inf")).softmax(-1, dtype=precision)
    return weights_Hqn.to(value_HnD.dtype) @ value_HnD
