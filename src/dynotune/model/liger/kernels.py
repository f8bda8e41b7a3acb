"""Liger's kernels in the form in which `dynotune.model.elementwise` takes ours, so that they are tried out as ours are.

Imported only where Liger is wanted.
"""

import torch
from torch import Tensor

from dynotune.model.liger.gated import Gated, GatedHalves
from dynotune.model.liger.rotary import LigerRotary


class RmsNorm:
    """As `dynotune.model.elementwise.triton_norm.RmsNorm`."""

    @staticmethod
    def apply(x: Tensor, weight: Tensor, eps: float, offset: float, round_first: bool) -> Tensor:
        """`x` [..., D] and `weight` [D]; gives [..., D].

        Liger's gives the dtype of `x`. Where the module's own gives that of both, which is a wider one in float32 weights
        under autocast, `x` is widened first.
        """
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction

        if round_first:
            x = x.to(torch.promote_types(x.dtype, weight.dtype))
        casting = "llama" if round_first else "gemma"
        in_place = False  # the gradient that comes in may be a residual's, too
        swap = x.dim() == 4 and not x.is_contiguous() and x.transpose(1, 2).is_contiguous()
        if swap:  # heads within tokens: they stay so, where Liger would copy them into another order
            x = x.transpose(1, 2)
        y: Tensor = LigerRMSNormFunction.apply(x, weight, eps, offset, casting, in_place)
        return y.transpose(1, 2) if swap else y


class Rotary:
    """As `dynotune.model.elementwise.triton_rotary.Rotary`."""

    @staticmethod
    def apply(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """`query` [B, H, T, D], `key` [B, K, T, D], `cos` and `sin` [B, T, D] or [1, T, D].

        Liger's gives the dtype of `query` and computes in that of the tables; torch's own operations do both in the wider.
        """
        wide = torch.promote_types(query.dtype, cos.dtype)
        return LigerRotary.apply(query.to(wide), key.to(wide), cos.to(wide), sin.to(wide))  # type: ignore[no-any-return, no-untyped-call]


__all__ = ["Gated", "GatedHalves", "RmsNorm", "Rotary"]
