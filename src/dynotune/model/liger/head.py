"""Liger's fused linear cross entropy as the head: on label tokens only, with the loss normalised as ours is.

Legend of shapes: T tokens of the micro-batch, D hidden, V vocabulary, N label tokens.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dynotune.model.elementwise.proof import random, why_different
from dynotune.model.head import Head
from dynotune.model.head.logit_map import LogitMap
from dynotune.model.head.projection import active, is_linear
from dynotune.model.packed import PackedBatch
from dynotune.objectives.row_loss import ROW_SUMS, RowLoss
from dynotune.objectives.sft import Objective

IGNORED = -100
"""A target that Liger leaves out. None of ours is."""

TRIED = 24, 64, 40_007
"""N, D and V of the head on which it is compared: more than one block of Liger's kernel, and no multiple of it."""


class LigerHead(Head):
    """As `Head`, for a plain linear projection. Entropy is not formed: it is NaN in the sums.

    Liger waits for the device twice in each call: for the number of labels, and to compare the incoming gradient with 1.
    """

    __slots__ = ()

    def __call__(self, hidden_TD: Tensor, batch: PackedBatch, objective: Objective) -> tuple[Tensor, Tensor]:
        """As `Head`'s, and by it where there is no label token, and where the hidden states want no gradient but the weight
        does, which Liger then gives none."""
        assert objective.sums == ROW_SUMS, objective.sums
        module: Any = active(self.module)
        n = len(batch.targets_N)
        trained = torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())
        if not n or (trained and not hidden_TD.requires_grad):
            return super().__call__(hidden_TD, batch, objective)
        rows_ND = hidden_TD.index_select(0, batch.predictors_N)
        loss, accuracy = fused_loss(
            rows_ND, module.weight, batch.targets_N, objective.row_loss, self.logits, module.bias
        )
        return loss, torch.stack([accuracy.detach() * n, torch.full_like(accuracy, torch.nan)])

    def describe(self) -> list[str]:
        trained = "trained" if active(self.module).weight.requires_grad else "frozen"
        return [
            f"Liger's fused linear cross entropy on label tokens only, {trained}"
            + (f"; {self.logits}" if str(self.logits) else "")
            + "; it does not form the entropy, which is logged as NaN"
        ]


def fused_loss(
    rows_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, loss: RowLoss, logits: LogitMap, bias_V: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The sum of the rows' losses [], and the share of rows whose largest logit is the target's [].

    The weight's gradient is summed over Liger's chunks in float32; Liger by itself sums it in the weight's precision.
    """
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    factor = logits.before * logits.scale
    if factor != 1.0:
        rows_ND = rows_ND * factor
    function: Callable[..., Any] = LigerFusedLinearCrossEntropyFunction.apply
    total, _, accuracy, _ = function(
        rows_ND,
        weight_VD,
        targets_N,
        bias_V,
        None,  # weights of the classes
        IGNORED,
        0.0,  # z-loss
        loss.smoothing,
        "sum",
        logits.cap,
        False,  # to give the z-loss
        torch.float32,  # sums
        loss.by_probability,
        True,  # to give the accuracy
    )
    return total, accuracy


def why_not(head: Head, loss: RowLoss, compute: torch.dtype) -> str | None:
    """Why Liger cannot stand in for `head` in this run, as the end of a sentence; None where it can.

    Tried on a small head, whose loss and gradients are compared with torch's. Waits for the device.
    """
    module = active(head.module)
    if not is_linear(module):
        return f"the head is a {type(module).__name__}, and Liger's is for a plain linear layer"
    if module.bias is not None and head.logits.scale != 1.0:
        return "the head has a bias and its logits are scaled, which Liger's has no place for"
    if compute not in (torch.bfloat16, torch.float16, torch.float32):
        return f"Liger has no kernel for {compute}"
    device = module.weight.device
    n, d, v = TRIED
    targets_N = torch.arange(n, device=device) * (v // n) + 7
    inputs = [random((n, d), 1, device), random((v, d), 2, device) / d**0.5]
    trained = module.weight.requires_grad

    def own(rows_ND: Tensor, weight_VD: Tensor) -> Tensor:
        z_NV = F.linear(rows_ND * head.logits.before, weight_VD)
        logp_NV = torch.log_softmax(head.logits(z_NV.float()), -1)
        logp_N = logp_NV.gather(-1, targets_N[:, None])[:, 0]
        weight_N = logp_N.detach().exp() if loss.by_probability else torch.ones_like(logp_N)
        smooth_N = logp_NV.mean(-1)
        return -(weight_N * ((1 - loss.smoothing) * logp_N + loss.smoothing * smooth_N)).sum()

    def liger(rows_ND: Tensor, weight_VD: Tensor) -> Tensor:
        return fused_loss(rows_ND, weight_VD, targets_N, loss, head.logits)[0]

    return why_different(own, liger, inputs, (True, trained), [compute, compute])
