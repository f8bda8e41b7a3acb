"""FlashAttention-4 (`flash_attn.cute`, package flash-attn-4): CuTe kernels, compiled when they are first called.

Behind an operator of our own: what PyTorch 2.11 has of glue for it expects another number of results.

Legend of shapes: T tokens of the row, S segments, H heads, K key and value heads, D head dimension.
"""

import importlib
import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor

from dynotune.foreign import MADE_FOR, UNLOADABLE, cannot_be_loaded
from dynotune.model.attention.backends.backend import Asked, nothing_to_prepare, why_no_flash
from dynotune.model.attention.backends.operator import define
from dynotune.model.attention.segments import Keys
from dynotune.unmet import unmet

WORDS = "FlashAttention-4"
ANY_SIZES = False

PACKAGES = ("flash-attn-4", "quack-kernels")
"""What is written in the CuTe DSL (nvidia-cutlass-dsl) and made for one version of it."""

_MODULE = "flash_attn.cute.interface"


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def missing() -> str | None:
    """Why the kernels cannot be loaded, as the end of a sentence; None once they are."""
    return _load()


def limits(asked: Asked) -> str | None:
    """As `Kernel.limits`."""
    # It would cap scores by a function that its compiler sees anew at every call.
    return why_no_flash(asked, capability=(9, 0), softcap=False, majors=frozenset({9, 10}))


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
    """As `Kernel.attend`."""
    assert softcap is None
    segments = boundaries_S1, longest, *(keys or (boundaries_S1, longest))
    return _operator(query_THD, key_TKD, value_TKD, *segments, scaling, window or -1, 0.0)[0]


@cache
def _load() -> str | None:
    try:
        if importlib.util.find_spec("flash_attn.cute") is None:
            return "the package flash-attn-4 is not installed"
    except ModuleNotFoundError:
        return "the package flash-attn-4 is not installed"
    apart = next((one for package in PACKAGES for one in unmet(package)), None)
    if apart is not None:
        # CuTe DSL 4.6.0 and 4.6.1 elect the lane of a bulk copy themselves, others leave it to the caller. Kernels of the
        # other kind import, compile and run forward; on an H200 their backward never came back
        # (flash-attn-4 4.0.0b36, quack-kernels 0.6.0, nvidia-cutlass-dsl 4.8.1; Dao-AILab/flash-attention#2797).
        return (
            f"{apart.package} {apart.version} {MADE_FOR} {apart.wants}, and {apart.there} is installed: with such a pair"
            " its backward may never return"
        )
    try:
        module = importlib.import_module(_MODULE)
    except UNLOADABLE as error:  # its compiler is another package, its versions many
        return cannot_be_loaded(_MODULE, error)
    lacking = [name for name in ("flash_attn_varlen_func", "_flash_attn_bwd") if not hasattr(module, name)]
    return f"{_MODULE} has no {lacking[0]}: another version is needed" if lacking else None


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    boundaries: Tensor,
    longest: int,
    key_boundaries: Tensor,
    longest_key: int,
    scaling: float,
    window: int,
    softcap: float,
) -> tuple[Tensor, Tensor]:
    with torch.no_grad():  # the gradient is ours to call
        out, logsumexp, *_ = importlib.import_module(_MODULE).flash_attn_varlen_func(
            query.detach(),
            key.detach(),
            value.detach(),
            cu_seqlens_q=boundaries,
            cu_seqlens_k=key_boundaries,
            max_seqlen_q=longest,
            max_seqlen_k=longest_key,
            softmax_scale=scaling,
            causal=True,
            window_size=_window(window),
            return_lse=True,
        )
    return out, logsumexp


def _backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    boundaries: Tensor,
    longest: int,
    key_boundaries: Tensor,
    longest_key: int,
    scaling: float,
    window: int,
    softcap: float,
) -> tuple[Tensor, Tensor, Tensor]:
    left, right = _window(window)
    with torch.no_grad():
        of_query, of_key, of_value, *_ = importlib.import_module(_MODULE)._flash_attn_bwd(
            query.detach(),
            key.detach(),
            value.detach(),
            out,
            gradient.contiguous(),
            logsumexp,
            softmax_scale=scaling,
            causal=True,
            window_size_left=left,
            window_size_right=right,
            cu_seqlens_q=boundaries,
            cu_seqlens_k=key_boundaries,
            max_seqlen_q=longest,
            max_seqlen_k=longest_key,
            deterministic=torch.are_deterministic_algorithms_enabled(),
        )
    return of_query.contiguous(), of_key.contiguous(), of_value.contiguous()


def _window(window: int) -> tuple[int | None, int | None]:
    """Keys before and behind the query itself; transformers' window counts the query too. None: no bound but causality."""
    return (window - 1, 0) if window > 0 else (None, None)


_operator = define("fa4", _forward, _backward)
