"""Rotary embedding by Liger's kernel. Imported only where Liger is wanted."""

from typing import Any

import torch
from liger_kernel.ops.rope import rope_backward, rope_forward
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import increment_version


class LigerRotary(torch.autograd.Function):
    """`LigerRotary.apply(query, key, cos, sin)`, all of one dtype."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """`query` [B, H, T, D], `key` [B, K, T, D], `cos` and `sin` [B, T, D] or [1, T, D].

        Where the heads of a token lie beside each other, which they do in what a projection gives, the results take the
        places of `query` and `key`. Whoever needs those for a backward pass gets an error from autograd.
        """
        rotated = rope_forward(query, key, cos, sin)[:2]
        for before, after in zip((query, key), rotated, strict=True):
            if before.data_ptr() == after.data_ptr():
                increment_version(before)
        ctx.save_for_backward(cos, sin)
        # To autograd they are no views of what came in: their gradient is the one below.
        return rotated[0].detach(), rotated[1].detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dquery: Tensor, dkey: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """In copies: the gradients that come in may be those of something else, too."""
        cos, sin = ctx.saved_tensors
        dquery, dkey = rope_backward(_own(dquery), _own(dkey), cos, sin)
        return dquery, dkey, None, None


def _own(x_BHTD: Tensor) -> Tensor:
    """A copy that Liger may write into. It copies by itself where the heads of a token do not lie beside each other."""
    return x_BHTD.clone() if x_BHTD.transpose(1, 2).is_contiguous() else x_BHTD
