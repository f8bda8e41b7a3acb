"""The exact attention as one operator with a backward pass of its own, for compiled layers.

The compiler would make a graph for each tuple of lengths. As an operator it is opaque, and gets boundaries as a tensor,
which the host has to read: on the CPU they are there, on a GPU every layer would wait, so it refuses.

Legend of shapes: T tokens of the row, S segments, n tokens of a segment, H heads, K key and value heads, D head dimension.
"""

import torch
from torch import Tensor

from dynotune.model.attention.backends import reference


@torch.library.custom_op("dynotune::reference_attention", mutates_args=())
def attend(
    query_HTD: Tensor,
    key_KTD: Tensor,
    value_KTD: Tensor,
    boundaries_S1: Tensor,
    scaling: float,
    sliding_window: int | None,
    softcap: float | None,
) -> Tensor:
    """As `reference.attend`, with boundaries int32 [S + 1] in place of lengths: [T, H, D]."""
    lengths = _lengths(boundaries_S1)
    return reference.attend(query_HTD, key_KTD, value_KTD, lengths, scaling, sliding_window, softcap)


@torch.library.custom_op("dynotune::reference_attention_backward", mutates_args=())
def _backward(
    gradient_THD: Tensor,
    query_HTD: Tensor,
    key_KTD: Tensor,
    value_KTD: Tensor,
    boundaries_S1: Tensor,
    scaling: float,
    sliding_window: int | None,
    softcap: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, in their shapes. Weights are computed again, in float32 at least."""
    like = query_HTD, key_KTD, value_KTD
    wide = torch.promote_types(query_HTD.dtype, torch.float32)
    shared = query_HTD.shape[0] // key_KTD.shape[0]
    query_HTD = query_HTD.to(wide)
    key_HTD, value_HTD = (x.to(wide).repeat_interleave(shared, 0) for x in (key_KTD, value_KTD))
    gradient_HTD = gradient_THD.to(wide).transpose(0, 1)
    gradients = [torch.empty_like(query_HTD) for _ in range(3)]
    start = 0
    for n in _lengths(boundaries_S1):
        part = slice(start, start + n)
        q, k, v, g = (x[:, part] for x in (query_HTD, key_HTD, value_HTD, gradient_HTD))
        for whole_HTD, mine_HnD in zip(
            gradients, _of_segment(q, k, v, g, scaling, sliding_window, softcap), strict=True
        ):
            whole_HTD[:, part] = mine_HnD
        start += n
    d_query, *d_others = gradients
    summed = [d.view(-1, shared, *d.shape[1:]).sum(1) for d in d_others]
    found = [d.to(x.dtype).contiguous() for d, x in zip((d_query, *summed), like, strict=True)]
    return found[0], found[1], found[2]


def _of_segment(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, scaling: float, window: int | None, softcap: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients [H, n, D] of one segment's query, key and value; `g` is that of its output."""
    scores_Hnn = q @ k.transpose(1, 2) * scaling
    slope_Hnn = None
    if softcap is not None:
        capped_Hnn = torch.tanh(scores_Hnn / softcap)
        scores_Hnn, slope_Hnn = softcap * capped_Hnn, 1 - capped_Hnn**2
    n = q.shape[1]
    seen_nn = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    if window is not None:
        seen_nn = seen_nn.triu(1 - window)
    weights_Hnn = scores_Hnn.masked_fill(~seen_nn, float("-inf")).softmax(-1)
    d_weights_Hnn = g @ v.transpose(1, 2)
    d_scores_Hnn = weights_Hnn * (d_weights_Hnn - (d_weights_Hnn * weights_Hnn).sum(-1, keepdim=True))
    if slope_Hnn is not None:
        d_scores_Hnn = d_scores_Hnn * slope_Hnn
    d_scores_Hnn = d_scores_Hnn * scaling
    return d_scores_Hnn @ k, d_scores_Hnn.transpose(1, 2) @ q, weights_Hnn.transpose(1, 2) @ g


def _lengths(boundaries_S1: Tensor) -> tuple[int, ...]:
    return tuple(n for n in boundaries_S1.diff().tolist() if n)


@attend.register_fake
def _(
    query_HTD: Tensor,
    key_KTD: Tensor,
    value_KTD: Tensor,
    boundaries_S1: Tensor,
    scaling: float,
    sliding_window: int | None,
    softcap: float | None,
) -> Tensor:
    if query_HTD.is_cuda:
        raise RuntimeError("attention runs one document after another here, which compiled layers cannot on a GPU")
    heads, tokens, _ = query_HTD.shape
    return query_HTD.new_empty(tokens, heads, value_KTD.shape[2])


@_backward.register_fake
def _(
    gradient_THD: Tensor,
    query_HTD: Tensor,
    key_KTD: Tensor,
    value_KTD: Tensor,
    boundaries_S1: Tensor,
    scaling: float,
    sliding_window: int | None,
    softcap: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    like = torch.contiguous_format
    return (
        torch.empty_like(query_HTD, memory_format=like),
        torch.empty_like(key_KTD, memory_format=like),
        torch.empty_like(value_KTD, memory_format=like),
    )


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[object, ...], output: Tensor) -> None:
    tensors, numbers = inputs[:4], inputs[4:]
    ctx.save_for_backward(*tensors)  # type: ignore[arg-type]
    ctx.numbers = numbers  # type: ignore[attr-defined]


def _give_back(ctx: torch.autograd.function.FunctionCtx, gradient_THD: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _backward(gradient_THD, *ctx.saved_tensors, *ctx.numbers)  # type: ignore[attr-defined]
    return *gradients, None, None, None, None


attend.register_autograd(_give_back, setup_context=_keep)
