"""What a preference loss sees: for each answer the sum of its log-probabilities. It never meets tokens or logits.

Legend of shapes: P pairs of a micro-batch.
"""

from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor


class Need(StrEnum):
    """What a loss asks for beside the answers' log-probabilities and lengths."""

    REFERENCE = "reference"
    """`Answers.reference_P`."""

    TAILS = "tails"
    """`Answers.tails_P`, and `Answers.reference_tails_P` where there is a reference."""

    AGREEMENT = "agreement"
    """`Answers.agreement_P`."""

    TOKEN_SHARES = "token shares"  # noqa: S105  (tokens of text)
    """`Pairs.token_shares_P`."""

    WHOLE_GROUPS = "whole groups"
    """`Pairs.groups`: the pairs of a group stand together in one micro-batch of one rank."""


@dataclass(frozen=True, slots=True)
class Answers:
    """One side of the pairs. Log-probabilities are in nats, float32 or float64, summed over an answer's label tokens."""

    logps_P: Tensor
    """By the policy, with gradient."""

    lengths_P: Tensor
    """Label tokens that have a predictor."""

    reference_P: Tensor | None = None
    """By the reference, without gradient."""

    _: KW_ONLY

    tails_P: Tensor | None = None
    """The part of `logps_P` on label tokens behind the length of the pair's shorter answer, with gradient."""

    reference_tails_P: Tensor | None = None
    """The same part of `reference_P`."""

    unweighted_P: Tensor | None = None
    """What `logps_P` was before its tail was weighted (`without_tails`)."""

    agreement_P: Tensor | None = None
    """Sum over label tokens of log p(token) - log(sum over the vocabulary of p^2), by the policy, without gradient."""

    @property
    def ratios(self) -> Tensor:
        """log policy - log reference [P]."""
        assert self.reference_P is not None, "this loss needs the reference"
        return self.logps_P - self.reference_P

    @property
    def counts(self) -> Tensor:
        """Lengths to divide by [P]: at least 1, in the precision of the log-probabilities."""
        return self.lengths_P.to(self.logps_P.dtype).clamp(min=1)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of a micro-batch, in the order of the step."""

    chosen: Answers
    rejected: Answers

    groups: tuple[int, ...] | None = None
    """Pairs in each group, one group after another. A group is what TRL calls a batch: `per_device_train_batch_size`
    pairs that follow each other in the step. Known on the host."""

    token_shares_P: Tensor | None = None
    """Pairs over chosen label tokens, both of the pair's whole group (`groups.token_shares`)."""


def without_tails(answers: Answers, alpha: float) -> Answers:
    """Log-probabilities in which the tail of the longer answer counts `alpha` only (LD-DPO, arXiv 2409.06411).

    The gradient of a token in the tail is exactly `alpha` of what it was: 0 where `alpha` is 0.
    """
    assert answers.tails_P is not None, "LD-DPO needs the tails"
    reference_P = answers.reference_P
    if reference_P is not None:
        assert answers.reference_tails_P is not None, "LD-DPO needs the tails by the reference, too"
        reference_P = (reference_P - answers.reference_tails_P) + alpha * answers.reference_tails_P
    logps_P = (answers.logps_P - answers.tails_P) + alpha * answers.tails_P
    return replace(
        answers,
        logps_P=logps_P,
        reference_P=reference_P,
        tails_P=None,
        reference_tails_P=None,
        unweighted_P=answers.logps_P,
    )


def own_likelihood(pairs: Pairs) -> Tensor:
    """How likely the policy itself would have written both answers [P], at most 1 and without gradient: the weight of
    WPO (arXiv 2406.11827, eq. 2, aligned by the policy's own spread)."""
    weight_P = torch.ones_like(pairs.chosen.logps_P)
    for side in (pairs.chosen, pairs.rejected):
        assert side.agreement_P is not None, "WPO needs the agreement"
        weight_P = weight_P * (side.agreement_P / side.counts).exp()
    return weight_P.detach()
