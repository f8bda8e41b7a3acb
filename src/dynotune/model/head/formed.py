"""Gradients that were formed in the forward pass, handed to autograd.

Legend of shapes: T tokens, D hidden, N label tokens.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Formed(torch.autograd.Function):
    """The loss [] whose gradients are known already: the backward pass scales them and puts the rows in their places."""

    @staticmethod
    def forward(
        ctx: Any,
        loss: Tensor,
        predictors_N: Tensor,
        gradient_ND: Tensor | None,
        gradients: list[Tensor],
        hidden_TD: Tensor,
        *trained: Tensor,
    ) -> Tensor:
        """`gradient_ND`: by the rows `predictors_N` (each at most once) of `hidden_TD`. `gradients`: by `trained`.

        The list is emptied in the backward pass, so that a gradient of the head's size is held once, not copied.
        """
        assert len(gradients) == len(trained), (len(gradients), len(trained))
        ctx.predictors_N, ctx.gradient_ND, ctx.gradients = predictors_N, gradient_ND, gradients
        ctx.shape, ctx.precision = hidden_TD.shape, hidden_TD.dtype
        ctx.precisions = [tensor.dtype for tensor in trained]
        ctx.spent = False
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Scale: in place, and once."""
        if ctx.spent:
            raise RuntimeError(
                "backward through the labelled-rows head a second time: its gradients were formed in the forward pass and"
                " given away by the first backward. Run the forward pass again instead of retaining the graph."
            )
        ctx.spent = True
        hidden_gradient = None
        if ctx.gradient_ND is not None:
            # Scaled before it is rounded to the hidden states' precision, so that it is rounded once.
            rows_ND = ctx.gradient_ND.mul_(upstream).to(ctx.precision)
            hidden_gradient = torch.zeros(ctx.shape, dtype=ctx.precision, device=rows_ND.device)
            hidden_gradient.index_copy_(0, ctx.predictors_N, rows_ND)
            ctx.gradient_ND = None
        given = [ctx.gradients.pop(0).mul_(upstream).to(precision) for precision in ctx.precisions]
        return (None, None, None, None, hidden_gradient, *given)
