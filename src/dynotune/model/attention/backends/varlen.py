"""PyTorch's own variable-length attention: its copy of FlashAttention-2.

Legend of shapes: T tokens of the row, S segments, H heads, K key and value heads, D head dimension.
"""

import inspect
from typing import Any

from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from dynotune.model.attention.backends.backend import Asked, nothing_to_prepare, why_no_flash
from dynotune.model.attention.segments import Keys

WORDS = "PyTorch's variable-length kernel (FlashAttention-2)"
ANY_SIZES = False

# From torch 2.12 on, key heads that several query heads share have to be announced; before, they just work.
_SHARED: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}


def limits(asked: Asked) -> str | None:
    """As `Kernel.limits`."""
    return why_no_flash(asked, capability=(8, 0), softcap=False)


prepare = nothing_to_prepare


def missing() -> None:
    """It is part of PyTorch."""


def attend(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    boundaries_S1: Tensor,
    longest: int,
    scaling: float,
    window: int | None,
    softcap: float | None,
    plan: Any,
    keys: Keys | None = None,
) -> Tensor:
    """As `Kernel.attend`."""
    assert softcap is None
    keys = keys or Keys(boundaries_S1, longest)
    out_THD = varlen_attn(
        query_THD,
        key_TKD,
        value_TKD,
        boundaries_S1,
        keys.boundaries_S1,
        longest,
        keys.longest,
        scale=scaling,
        # The kernel's left bound counts the keys before the query itself; transformers' window counts the query too.
        window_size=(-1, 0) if window is None else (window - 1, 0),
        **_SHARED,
    )
    assert isinstance(out_THD, Tensor)
    return out_THD
