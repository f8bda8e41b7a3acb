"""PyTorch's variable-length attention: one kernel call for all segments of a row. CUDA, 16-bit.

Legend of shapes: T tokens of the row, S segments, H heads, K key and value heads, D head dimension.
"""

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

_LARGEST_HEAD = 256

# From torch 2.12 on, key heads that several query heads share have to be announced; before, they just work.
_SHARED: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}


def why_not(query: Tensor, key: Tensor, value: Tensor, softcap: float | None) -> str | None:
    """Why the kernel cannot take these [1, H or K, T, D] tensors; None where it can."""
    if not query.is_cuda:
        return f"there is no kernel for the {query.device.type.upper()}"
    if query.dtype not in (torch.bfloat16, torch.float16):
        return f"the kernel computes in 16 bits, not in {str(query.dtype).removeprefix('torch.')}"
    if _too_old(query.device.index):
        return "the kernel needs compute capability 8.0"
    if softcap is not None:
        return "the kernel does not soft-cap scores"
    if value.shape[-1] != query.shape[-1]:
        return f"the kernel needs heads of one size (queries {query.shape[-1]}, values {value.shape[-1]})"
    if query.shape[-1] % 8 or query.shape[-1] > _LARGEST_HEAD:
        return f"the kernel takes head dimensions that are multiples of 8 up to {_LARGEST_HEAD}, not {query.shape[-1]}"
    if query.shape[1] % key.shape[1]:
        return f"{query.shape[1]} query heads do not share {key.shape[1]} key heads evenly"
    return None


def attend(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    boundaries_S1: Tensor,
    longest: int,
    scaling: float,
    sliding_window: int | None,
) -> Tensor:
    """Causal attention [T, H, D] within each segment."""
    # The kernel's left bound counts the keys before the query itself; transformers' window counts the query too.
    window = (-1, 0) if sliding_window is None else (sliding_window - 1, 0)
    out_THD = varlen_attn(
        query_THD,
        key_TKD,
        value_TKD,
        boundaries_S1,
        boundaries_S1,
        longest,
        longest,
        scale=scaling,
        window_size=window,
        **_SHARED,
    )
    assert isinstance(out_THD, Tensor)
    return out_THD


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # else it is put into the graph
def _too_old(device: int) -> bool:
    return torch.cuda.get_device_capability(device) < (8, 0)
