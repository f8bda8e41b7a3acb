"""Rows of logits to losses and gradients with torch's operations: runs on any device, and is what the kernel is checked by.

Legend of shapes: N rows (label tokens), V vocabulary.
"""

from typing import Protocol

import torch
from torch import Tensor

from dynotune.model.head.logit_map import LogitMap
from dynotune.objectives.row_loss import ROW_SUMS, RowLoss

BLOCK_BYTES = 128 << 20
"""Of one float32 temporary; a few of them live at once, whatever the chunk."""


class Rows(Protocol):
    """The contract of a row function, of which there are two."""

    def __call__(
        self, z_NV: Tensor, targets_N: Tensor, loss: RowLoss, logits: LogitMap, form_gradient: bool, out_3N: Tensor
    ) -> None:
        """Write each row's loss, hit (0 or 1) and entropy to `out_3N`.

        z_NV: the projection's output, in any floating precision, rows of stride 1; the arithmetic is float32, or float64
        where z is. With `form_gradient`, z is overwritten by the gradient of the losses' sum by z, in z's precision.
        A tie for the largest logit is won by the first. Probability 0 adds no entropy. NaN comes out as NaN.
        """
        ...


def statistics(n: int, like: Tensor) -> Tensor:
    """Room for what a row function writes of `n` rows."""
    precision = torch.float64 if like.dtype is torch.float64 else torch.float32
    return torch.empty(1 + len(ROW_SUMS), n, dtype=precision, device=like.device)


def rows_in_torch(
    z_NV: Tensor, targets_N: Tensor, loss: RowLoss, logits: LogitMap, form_gradient: bool, out_3N: Tensor
) -> None:
    """A few hundred rows at a time, so that no float32 copy of the chunk exists."""
    block = max(1, BLOCK_BYTES // (z_NV.shape[1] * out_3N.element_size()))
    for i in range(0, len(z_NV), block):
        own = slice(i, i + block)
        _rows(z_NV[own], targets_N[own], loss, logits, form_gradient, out_3N[:, own])


def _rows(
    z_NV: Tensor, targets_N: Tensor, loss: RowLoss, logits: LogitMap, form_gradient: bool, out_3N: Tensor
) -> None:
    targets_N1 = targets_N[:, None]
    x_NV = logits(z_NV.to(out_3N.dtype))
    out_3N[1] = x_NV.argmax(-1) == targets_N
    logp_NV = torch.log_softmax(x_NV, -1)
    own_N = logp_NV.gather(-1, targets_N1)[:, 0]
    weight_N = own_N.exp() if loss.by_probability else torch.ones_like(own_N)
    nll_N = -own_N
    if loss.smoothing:
        nll_N = (1 - loss.smoothing) * nll_N - loss.smoothing * logp_NV.mean(-1)
    out_3N[0] = weight_N * nll_N
    p_NV = logp_NV.exp_()
    out_3N[2] = torch.special.entr(p_NV).sum(-1)
    if not form_gradient:
        return
    p_NV -= loss.smoothing / p_NV.shape[1]
    p_NV.scatter_add_(-1, targets_N1, torch.full_like(own_N, loss.smoothing - 1)[:, None])
    p_NV *= weight_N[:, None] * logits.scale
    if logits.cap is not None:
        p_NV *= 1 - (x_NV / logits.cap) ** 2  # d tanh(u) = 1 - tanh(u) ** 2
    z_NV.copy_(p_NV)
