"""The exact attention as one operator with a backward pass of its own, for compiled layers.

The compiler would make a graph for each tuple of lengths. As an operator it is opaque, and gets boundaries as a tensor,
which the host has to read: on the CPU they are there, on a GPU every layer would wait, so it refuses.

Legend of shapes: T tokens of the row, R rows of keys, S segments, q queries and n keys of a segment, H heads, K key and
value heads, D head dimension.
"""

import torch
from torch import Tensor

from dynotune.model.attention.backends import reference


@torch.library.custom_op("dynotune::reference_attention", mutates_args=())
def attend(
    query_HTD: Tensor,
    key_KRD: Tensor,
    value_KRD: Tensor,
    boundaries_S1: Tensor,
    key_boundaries_S1: Tensor,
    scaling: float,
    sliding_window: int | None,
    softcap: float | None,
) -> Tensor:
    """As `reference.attend`, with boundaries int32 [S + 1] of queries and keys in place of lengths: [T, H, D]."""
    lengths, key_lengths = _lengths(boundaries_S1), _lengths(key_boundaries_S1)
    return reference.attend(query_HTD, key_KRD, value_KRD, lengths, scaling, sliding_window, softcap, key_lengths)


@torch.library.custom_op("dynotune::reference_attention_backward", mutates_args=())
def _backward(
    gradient_THD: Tensor,
    query_HTD: Tensor,
    key_KRD: Tensor,
    value_KRD: Tensor,
    boundaries_S1: Tensor,
    key_boundaries_S1: Tensor,
    scaling: float,
    sliding_window: int | None,
    softcap: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, in their shapes. Weights are computed again, in float32 at least."""
    like = query_HTD, key_KRD, value_KRD
    wide = torch.promote_types(query_HTD.dtype, torch.float32)
    shared = query_HTD.shape[0] // key_KRD.shape[0]
    query_HTD = query_HTD.to(wide)
    key_HRD, value_HRD = (x.to(wide).repeat_interleave(shared, 0) for x in (key_KRD, value_KRD))
    gradient_HTD = gradient_THD.to(wide).transpose(0, 1)
    gradients = [torch.empty_like(x) for x in (query_HTD, key_HRD, value_HRD)]
    start, key_start = 0, 0
    for queries, n in zip(_lengths(boundaries_S1), _lengths(key_boundaries_S1), strict=True):
        part, key_part = slice(start, start + queries), slice(key_start, key_start + n)
        q, k, v, g = query_HTD[:, part], key_HRD[:, key_part], value_HRD[:, key_part], gradient_HTD[:, part]
        found = _of_segment(q, k, v, g, scaling, sliding_window, softcap)
        for whole, rows, mine in zip(gradients, (part, key_part, key_part), found, strict=True):
            whole[:, rows] = mine
        start, key_start = start + queries, key_start + n
    d_query, *d_others = gradients
    summed = [d.view(-1, shared, *d.shape[1:]).sum(1) for d in d_others]
    made = [d.to(x.dtype).contiguous() for d, x in zip((d_query, *summed), like, strict=True)]
    return made[0], made[1], made[2]


def _of_segment(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, scaling: float, window: int | None, softcap: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of one segment's query [H, q, D], key and value [H, n, D]; `g` is that of its output."""
    scores_Hqn = q @ k.transpose(1, 2) * scaling
    slope_Hqn = None
    if softcap is not None:
        capped_Hqn = torch.tanh(scores_Hqn / softcap)
        scores_Hqn, slope_Hqn = softcap * capped_Hqn, 1 - capped_Hqn**2
    seen_qn = reference.seen_by(q.shape[1], k.shape[1], window, q.device)
    weights_Hqn = scores_Hqn.masked_fill(~seen_qn, float("-inf")).softmax(-1)
    d_weights_Hqn = g @ v.transpose(1, 2)
    d_scores_Hqn = weights_Hqn * (d_weights_Hqn - (d_weights_Hqn * weights_Hqn).sum(-1, keepdim=True))
    if slope_Hqn is not None:
        d_scores_Hqn = d_scores_Hqn * slope_Hqn
    d_scores_Hqn = d_scores_Hqn * scaling
    return d_scores_Hqn @ k, d_scores_Hqn.transpose(1, 2) @ q, weights_Hqn.transpose(1, 2) @ g


def _lengths(boundaries_S1: Tensor) -> tuple[int, ...]:
    return tuple(n for n in boundaries_S1.diff().tolist() if n)


@attend.register_fake
def _(
    query_HTD: Tensor,
    key_KRD: Tensor,
    value_KRD: Tensor,
    boundaries_S1: Tensor,
    key_boundaries_S1: Tensor,
    scaling: float,
    sliding_window: int | None,
    softcap: float | None,
) -> Tensor:
    if query_HTD.is_cuda:
        raise RuntimeError("attention runs one document after another here, which compiled layers cannot on a GPU")
    heads, tokens, _ = query_HTD.shape
    return query_HTD.new_empty(tokens, heads, value_KRD.shape[2])


@_backward.register_fake
def _(
    gradient_THD: Tensor,
    query_HTD: Tensor,
    key_KRD: Tensor,
    value_KRD: Tensor,
    boundaries_S1: Tensor,
    key_boundaries_S1: Tensor,
    scaling: float,
    sliding_window: int | None,
    softcap: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    like = torch.contiguous_format
    return (
        torch.empty_like(query_HTD, memory_format=like),
        torch.empty_like(key_KRD, memory_format=like),
        torch.empty_like(value_KRD, memory_format=like),
    )


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[object, ...], output: Tensor) -> None:
    tensors, numbers = inputs[:5], inputs[5:]
    ctx.save_for_backward(*tensors)  # type: ignore[arg-type]
    ctx.numbers = numbers  # type: ignore[attr-defined]


def _give_back(ctx: torch.autograd.function.FunctionCtx, gradient_THD: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _backward(gradient_THD, *ctx.saved_tensors, *ctx.numbers)  # type: ignore[attr-defined]
    return *gradients, None, None, None, None, None


attend.register_autograd(_give_back, setup_context=_keep)
