"""The attention function that transformers calls, and what it refuses.

Legend of shapes: T tokens of the row, R rows of gathered keys, H heads, K key and value heads, D head dimension.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dynotune.errors import ModelError
from dynotune.model.attention.backends import DEFAULT, KERNELS, REFERENCE, Asked, reference, traced_reference, why_not
from dynotune.model.attention.segments import Keys

NAME = "dynotune_packed"
"""As registered. It must stay out of transformers' mask functions: for a name that has none no mask is made, and the
device is not asked whether the row is packed."""

_IRRELEVANT = frozenset(
    {
        "cache_position", "is_causal", "num_items_in_batch", "output_attentions",
        "output_hidden_states", "output_router_logits", "position_embeddings", "position_ids", "return_dict", "use_cache",
    }
)  # fmt: skip
"""Keywords that models pass on to every attention function and that say nothing about what attends to what."""


class BoundariesMissingError(ModelError):
    """Attention was called and did not get the boundaries of documents."""


@dataclass(frozen=True, slots=True)
class Call:
    """What one attention call was asked for and which backend took it. Kept only where somebody collects calls."""

    module: nn.Module
    backend: str
    """The one that took it, by name."""

    why_reference: str | None
    """Why the call did not go to a kernel; None where it did."""

    asked: Asked
    scaling: float

    @property
    def window(self) -> int | None:
        return self.asked.window

    @property
    def softcap(self) -> float | None:
        return self.asked.softcap


def packed_attention_call(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    segment_lengths: tuple[int, ...] | None = None,
    cu_seq_lens_k: Tensor | None = None,
    max_length_k: int | None = None,
    key_rows: Tensor | None = None,
    key_segment_lengths: tuple[int, ...] | None = None,
    attention_backend: str = DEFAULT,
    attention_plan: Any = None,
    attention_calls: list[Call] | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each segment. Query [1, H, T, D], key and value [1, K, T, D] to [1, T, H, D].

    `sliding_window` w as in transformers: a token sees itself and the w - 1 before it. `softcap` c: scores become
    c * tanh(scores / c). `attention_backend`: a name of `backends`; what it cannot take, the reference does.
    `attention_plan`: what its `prepare` made of this row. `key_rows` [R]: keys and values are gathered from these tokens
    first, and their segments are those of `cu_seq_lens_k`. Raises `ModelError` for what cannot be done exactly.
    """
    if cu_seq_lens_q is None or max_length_q is None:
        raise BoundariesMissingError(
            f"{type(module).__name__} was called without the boundaries of its documents while packed attention is"
            " installed. Call the model inside `stock_attention(model)` to generate or to evaluate it as transformers does."
        )
    _refuse(module, attention_mask, dropout, more)
    # Not `x[0]`: its gradient is written into zeros of the whole, and lies there with tokens within heads, so that what
    # comes before copies it once more. That of `squeeze` is a view.
    query_HTD, key_KTD, value_KTD = (x.squeeze(0) for x in _in_compute_dtype(query, key, value))
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    keys = None
    if key_rows is not None:
        assert cu_seq_lens_k is not None and max_length_k is not None  # noqa: PT018  they come together
        keys = Keys(cu_seq_lens_k, max_length_k)
        key_KTD, value_KTD = _gathered(key_KTD, key_rows), _gathered(value_KTD, key_rows)
    asked = _asked(query_HTD, key_KTD, value_KTD, sliding_window, softcap, shared=keys is not None)
    kernel = KERNELS.get(attention_backend)
    why_reference = "no kernel is chosen" if kernel is None else why_not(kernel, asked)
    if attention_calls is not None:
        backend = REFERENCE if why_reference else attention_backend
        attention_calls.append(Call(module, backend, why_reference, asked, scaling))
    if kernel is not None and why_reference is None:
        query_THD, key_RKD, value_RKD = (x.transpose(0, 1) for x in (query_HTD, key_KTD, value_KTD))
        out_THD = kernel.attend(
            query_THD,
            key_RKD,
            value_RKD,
            cu_seq_lens_q,
            max_length_q,
            scaling,
            sliding_window,
            softcap,
            attention_plan,
            keys,
        )
    elif segment_lengths is None:  # compiled layers hand boundaries down as a tensor only
        ends = cu_seq_lens_q, cu_seq_lens_q if keys is None else keys.boundaries_S1
        out_THD = traced_reference.attend(query_HTD, key_KTD, value_KTD, *ends, scaling, sliding_window, softcap)
    else:
        out_THD = reference.attend(
            query_HTD, key_KTD, value_KTD, segment_lengths, scaling, sliding_window, softcap, key_segment_lengths
        )
    return out_THD[None], None


def _refuse(module: nn.Module, attention_mask: Tensor | None, dropout: float, more: dict[str, Any]) -> None:
    name = type(module).__name__
    if attention_mask is not None:
        raise ModelError(f"{name} brings a mask of its own, which packed attention does not apply.")
    if dropout:
        raise ModelError(
            f"{name} drops out attention weights (probability {dropout}), which packed attention does not."
        )
    if more.get("is_causal", getattr(module, "is_causal", True)) is False:
        raise ModelError(f"{name} is not causal, packed attention is.")
    unknown = sorted(key for key, value in more.items() if value is not None and key not in _IRRELEVANT)
    if unknown:
        raise ModelError(f"{name} asks its attention for {', '.join(unknown)}, which packed attention does not know.")


def _gathered(x_KTD: Tensor, key_rows: Tensor) -> Tensor:
    """[K, T, D] to [K, R, D], stored row by row as kernels read it. Gradients of a token's copies add up."""
    return x_KTD.transpose(0, 1).index_select(0, key_rows).transpose(0, 1)


def _asked(query: Tensor, key: Tensor, value: Tensor, window: int | None, softcap: float | None, shared: bool) -> Asked:
    heads, key_heads, head_dim, value_dim = query.shape[0], key.shape[0], query.shape[-1], value.shape[-1]
    return Asked(query.device, query.dtype, heads, key_heads, head_dim, value_dim, window, softcap, shared)


def _in_compute_dtype(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Under autocast in its dtype, as torch does with its own attention: rotary embeddings bring float32 back."""
    device = query.device.type
    # The meta device has no autocast and no answer to the question; torch 2.11's compiler cannot trace asking for that.
    if device == "meta" or not torch.is_autocast_enabled(device):
        return query, key, value
    dtype = torch.get_autocast_dtype(device)
    return query.to(dtype), key.to(dtype), value.to(dtype)
