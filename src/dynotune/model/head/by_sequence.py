"""Gradients of log-probabilities that are summed by sequence: each row's gradient times its sequence's coefficient.

The coefficient is what the objective makes of a sequence's log-probability, so it is known in the backward pass only.
Legend of shapes: T tokens, D hidden, N label tokens, Q sequences.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dynotune.model.head.scatter import summed
from dynotune.model.head.walk import Done

_SPENT = (
    "backward through the sequences' log-probabilities a second time: what it needs was given away by the first. Run the"
    " forward pass again instead of retaining the graph."
)


class FormedBySequence(torch.autograd.Function):
    """Log-probabilities [Q] whose gradients by the hidden states are formed already, one row a label token."""

    @staticmethod
    def forward(
        ctx: Any,
        logps_Q: Tensor,
        predictors_N: Tensor,
        sequences_N: Tensor,
        gradient_ND: Tensor,
        hidden_TD: Tensor,
    ) -> Tensor:
        """`gradient_ND`: of the *negative* log-probability of each label token, by its predictor's row of `hidden_TD`."""
        ctx.places = predictors_N, sequences_N
        ctx.gradient_ND = gradient_ND
        ctx.tokens, ctx.precision = len(hidden_TD), hidden_TD.dtype
        return logps_Q.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_Q: Tensor) -> tuple[Tensor | None, ...]:
        """Scale in place, and once. Rows are rounded to the hidden states' precision before repeated ones are added."""
        if ctx.gradient_ND is None:
            raise RuntimeError(_SPENT)
        gradient_ND, ctx.gradient_ND = ctx.gradient_ND, None
        predictors_N, sequences_N = ctx.places
        factors_N = factors(upstream_Q, sequences_N)
        rows_ND = gradient_ND.mul_(factors_N[:, None]).to(ctx.precision)
        return None, None, None, None, summed(rows_ND, predictors_N, ctx.tokens)


class RecomputedBySequence(torch.autograd.Function):
    """Log-probabilities [Q] whose gradients, also by what the head trains, are formed in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        logps_Q: Tensor,
        predictors_N: Tensor,
        sequences_N: Tensor,
        again: Callable[[Tensor], Done],
        hidden_TD: Tensor,
        *trained: Tensor,
    ) -> Tensor:
        """`again`: the walk with each label token's factor [N], under the same autocast and random numbers."""
        ctx.places = predictors_N, sequences_N
        ctx.again, ctx.trained = again, trained
        ctx.save_for_backward(
            hidden_TD, *trained
        )  # so that whoever changes one of them before the backward pass is told
        return logps_Q.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_Q: Tensor) -> tuple[Tensor | None, ...]:
        hidden_TD, *_ = ctx.saved_tensors
        predictors_N, sequences_N = ctx.places
        done = ctx.again(factors(upstream_Q, sequences_N))
        by_hidden = None
        if done.gradient_ND is not None:
            by_hidden = summed(done.gradient_ND.to(hidden_TD.dtype), predictors_N, len(hidden_TD))
            done.gradient_ND = None
        found = {id(tensor): gradient for tensor, gradient in zip(done.trained, done.gradients, strict=True)}
        assert found.keys() == {id(tensor) for tensor in ctx.trained}, "the head trains other tensors than it did"
        return None, None, None, None, by_hidden, *(found[id(t)].to(t.dtype) for t in ctx.trained)


def factors(upstream_Q: Tensor, sequences_N: Tensor) -> Tensor:
    """What each label token's negative log-probability is multiplied by [N]."""
    return upstream_Q.neg().index_select(0, sequences_N)
