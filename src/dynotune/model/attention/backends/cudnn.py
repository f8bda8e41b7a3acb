"""cuDNN's attention through `nvidia-cudnn-frontend`, which registers `torch.ops.cudnn.sdpa_fwd` and `sdpa_bwd`.

Never PyTorch's own way to it for rows of segments (`aten::_cudnn_attention_*`, jagged tensors): in 2.11 its backward takes
the head dimension for the longest length and writes behind its buffers (pytorch pull request 186142).

Legend of shapes: T tokens of the row, S segments, H heads, K key and value heads, D head dimension.
"""

import importlib
import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor

from dynotune.foreign import UNLOADABLE, cannot_be_loaded
from dynotune.model.attention.backends.backend import Asked, nothing_to_prepare, why_no_flash
from dynotune.model.attention.segments import Keys

WORDS = "cuDNN"
ANY_SIZES = False

_MODULE = "cudnn.sdpa.fwd.torch_op"
_NEEDED = ("window_left", "cu_seqlens_q", "cu_seqlens_kv", "max_seqlen_q", "max_seqlen_kv", "return_lse")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def missing() -> str | None:
    """Why the operators cannot be loaded, as the end of a sentence; None once they are."""
    return _load()


def limits(asked: Asked) -> str | None:
    """As `Kernel.limits`."""
    # Above 128, support has come and gone with its versions (pytorch pull request 161210).
    return why_no_flash(asked, capability=(9, 0), softcap=False, shared=False, majors=frozenset({9, 10}), largest=128)


prepare = nothing_to_prepare


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
    """As `Kernel.attend`, without `keys`: rows of segments are aligned at their first query and key."""
    assert softcap is None and keys is None  # noqa: PT018  both by `limits`
    out_THD: Tensor
    out_THD, _ = torch.ops.cudnn.sdpa_fwd(
        query_THD,
        key_TKD,
        value_TKD,
        scaling,
        is_causal=True,
        window_left=window or -1,  # counts the query itself, as transformers does
        cu_seqlens_q=boundaries_S1,
        cu_seqlens_kv=boundaries_S1,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
        return_lse=True,  # the backward needs it
    )
    return out_THD


@cache
def _load() -> str | None:
    if importlib.util.find_spec("cudnn") is None:
        return "the package nvidia-cudnn-frontend is not installed"
    try:
        importlib.import_module(_MODULE)
        schema = torch.ops.cudnn.sdpa_fwd.default._schema
    except UNLOADABLE as error:  # cuDNN itself is missing, or another version
        return cannot_be_loaded("nvidia-cudnn-frontend's module of operators", error)
    known = {argument.name for argument in schema.arguments}
    lacking = [name for name in _NEEDED if name not in known]
    return f"nvidia-cudnn-frontend's operator does not know `{lacking[0]}`: take 1.32 or newer" if lacking else None
