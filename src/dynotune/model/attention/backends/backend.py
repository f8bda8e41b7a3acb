"""What a kernel for packed attention is asked for, what it must offer, and limits that kernels share.

Legend of shapes: T tokens of the row, S segments, H heads, K key and value heads, D head dimension.
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from dynotune.model.attention.segments import Keys, Segments

SIXTEEN_BITS = (torch.bfloat16, torch.float16)


class Asked(NamedTuple):
    """What one attention call needs, as far as kernels have limits."""

    device: torch.device
    dtype: torch.dtype
    heads: int
    key_heads: int
    head_dim: int
    """Of queries and keys."""

    value_dim: int
    window: int | None
    """As transformers counts it: a token sees itself and the `window - 1` before it."""

    softcap: float | None
    """Scores become softcap * tanh(scores / softcap)."""

    shared: bool = False
    """Whether keys have segments of their own, longer than those of the queries: documents share a beginning."""


class Kernel(Protocol):
    """A backend that computes all segments of a row in one call. A module is one."""

    WORDS: str
    """What it is called where it is named to a user."""

    ANY_SIZES: bool
    """Whether a number of segments and a longest length that it has not seen cost it nothing, where it is launched."""

    def limits(self, asked: Asked) -> str | None:
        """Why it is not made for such a call or device, as the end of a sentence; None where it is. Imports nothing."""
        ...

    def missing(self) -> str | None:
        """Why its package cannot be loaded, as the end of a sentence; None once it is."""
        ...

    def prepare(self, segments: Segments, decoder: nn.Module) -> Any:
        """What all layers of a micro-batch share; it reaches `attend` as `plan`. None where that is nothing."""
        ...

    def attend(
        self,
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
        """Causal attention [T, H, D] within each segment, differentiable by the first three.

        boundaries_S1: int32, first 0, last T; repeated ends are empty segments. longest: at least the tokens of the longest.
        keys: segments of keys and values, which are [R, K, D] then. The last query of a segment sees its last key, the one
        before it all but that one; a window counts keys back from there. None: they are those of the queries.
        """
        ...


def why_not(kernel: Kernel, asked: Asked) -> str | None:
    """Why `kernel` cannot take such a call; None where it can. Compiled code asks, too."""
    return kernel.limits(asked) or kernel.missing()


def nothing_to_prepare(segments: Segments, decoder: nn.Module) -> None:
    """`Kernel.prepare` of a kernel whose layers share nothing but the boundaries."""


def why_no_flash(
    asked: Asked,
    *,
    capability: tuple[int, int],
    softcap: bool,
    shared: bool = True,
    majors: frozenset[int] | None = None,
    largest: int = 256,
) -> str | None:
    """Limits of kernels of FlashAttention's kind.

    capability: the least. softcap: whether it caps scores. shared: whether it takes segments of keys that are longer than
    those of queries. majors: where given, of no other generation. largest: head dimension.
    """
    if asked.device.type != "cuda" or torch.version.hip is not None:
        kind = "ROCm" if torch.version.hip is not None else asked.device.type.upper()
        return f"there is no kernel for the {kind}"
    if asked.dtype not in SIXTEEN_BITS:
        return f"the kernel computes in 16 bits, not in {str(asked.dtype).removeprefix('torch.')}"
    here = capability_of(asked.device.index or 0)
    if here < capability:
        return (
            f"the kernel needs compute capability {capability[0]}.{capability[1]}, and this GPU has {here[0]}.{here[1]}"
        )
    if majors is not None and here[0] not in majors:
        generations = " or ".join(f"{major}.x" for major in sorted(majors))
        return f"the kernel is made for compute capability {generations}, and this GPU has {here[0]}.{here[1]}"
    if asked.value_dim != asked.head_dim:
        return f"the kernel needs heads of one size (queries {asked.head_dim}, values {asked.value_dim})"
    if asked.head_dim % 8 or asked.head_dim > largest:
        return f"the kernel takes head dimensions that are multiples of 8 up to {largest}, not {asked.head_dim}"
    if asked.heads % asked.key_heads:
        return f"{asked.heads} query heads do not share {asked.key_heads} key heads evenly"
    if asked.softcap is not None and not softcap:
        return "the kernel does not soft-cap scores"
    if asked.shared and not shared:
        return "the kernel lets the first query of a document see one key, and behind a shared beginning it has to see more"
    return None


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # else it is put into the graph
def capability_of(device: int) -> tuple[int, int]:
    """Compute capability of a CUDA device, by its index."""
    return torch.cuda.get_device_capability(device)
