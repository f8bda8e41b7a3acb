"""FlashAttention-3, for Hopper: whichever package brings `torch.ops.flash_attn_3`.

The official package first (`flash_attn_3`, `flash_attn_interface`), then the copy inside of xformers 0.0.34. A module, or a
shared library by its path, named in DYNOTUNE_FLASH_ATTENTION_3 goes before them. Algorithm: arXiv 2407.08608.

Legend of shapes: T tokens of the row, S segments, H heads, K key and value heads, D head dimension.
"""

import ctypes
import importlib
import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dynotune.foreign import UNLOADABLE, cannot_be_loaded
from dynotune.model.attention.backends.backend import Asked, nothing_to_prepare, why_no_flash
from dynotune.model.attention.backends.operator import define
from dynotune.model.attention.segments import Keys

WORDS = "FlashAttention-3"
ANY_SIZES = True
VARIABLE = "DYNOTUNE_FLASH_ATTENTION_3"

_MODULES = ("flash_attn_3._C", "flash_attn_interface")
_CUDART = "libcudart.so.12"
"""What builds for CUDA 12 link against, in a process whose PyTorch brings CUDA 13."""


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def missing() -> str | None:
    """Why the kernels cannot be loaded, as the end of a sentence; None once they are."""
    return _load()


def limits(asked: Asked) -> str | None:
    """As `Kernel.limits`."""
    return why_no_flash(asked, capability=(9, 0), softcap=True, majors=frozenset({9}))


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
    segments = boundaries_S1, longest, *(keys or (boundaries_S1, longest))
    return _operator(query_THD, key_TKD, value_TKD, *segments, scaling, window or -1, softcap or 0.0)[0]


@cache
def _load() -> str | None:
    if _registered():
        return None
    named = os.environ.get(VARIABLE)
    if named:
        return _failure(named)
    failed: list[str] = []
    for name in (*_MODULES, *_bundled()):
        if not name.endswith(".so") and importlib.util.find_spec(name.partition(".")[0]) is None:
            continue
        failure = _failure(name)
        if failure is None:
            return None
        failed.append(failure)
    return (
        failed[0]
        if failed
        else "no package that brings FlashAttention-3 (flash_attn_3, or xformers 0.0.34) is installed"
    )


def _failure(name: str) -> str | None:
    """Import the module, or load the shared library, of this name; why that was in vain."""
    try:
        if name.endswith(".so"):
            _bring_cudart(Path(name).parent)
            torch.ops.load_library(name)
        else:
            importlib.import_module(name)
    except UNLOADABLE as error:  # wheels for another CUDA, PyTorch or Python
        return cannot_be_loaded(name, error)
    return None if _registered() else f"{name} does not bring the operators torch.ops.flash_attn_3.fwd and bwd"


def _registered() -> bool:
    return hasattr(torch.ops.flash_attn_3, "fwd") and hasattr(torch.ops.flash_attn_3, "bwd")


def _bundled() -> list[str]:
    """The library inside of xformers. Importing xformers itself would ask for the PyTorch that it was built with."""
    return [str(path) for folder in _folders("xformers") if (path := folder / "flash_attn_3" / "_C.so").is_file()]


def _bring_cudart(beside: Path) -> None:
    """Load CUDA 12's runtime where the library's folder or a package brings it, so that the linker need not find it."""
    for folder in (beside, *(folder / "cuda_runtime" / "lib" for folder in _folders("nvidia"))):
        if (folder / _CUDART).is_file():
            ctypes.CDLL(str(folder / _CUDART), mode=ctypes.RTLD_GLOBAL)
            return


def _folders(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    return [Path(place) for place in (spec.submodule_search_locations or ())] if spec is not None else []


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
    out, logsumexp, *_ = torch.ops.flash_attn_3.fwd(
        *(_dense(x) for x in (query, key, value)),
        cu_seqlens_q=boundaries,
        cu_seqlens_k=key_boundaries,
        max_seqlen_q=longest,
        max_seqlen_k=longest_key,
        softmax_scale=scaling,
        is_causal=True,
        window_size_left=_left(window),
        softcap=softcap,
        num_splits=1,
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
    gradients = query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)
    torch.ops.flash_attn_3.bwd(
        *(_dense(x) for x in (gradient, query, key, value)),
        out,
        logsumexp,
        *gradients,
        cu_seqlens_q=boundaries,
        cu_seqlens_k=key_boundaries,
        max_seqlen_q=longest,
        max_seqlen_k=longest_key,
        softmax_scale=scaling,
        is_causal=True,
        window_size_left=_left(window),
        softcap=softcap,
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )
    return gradients


def _left(window: int) -> int:
    """Keys before the query itself; transformers' window counts the query too."""
    return window - 1 if window > 0 else -1


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


_operator = define("fa3", _forward, _backward)
