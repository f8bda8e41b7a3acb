"""What is logged of a step's pairs, by TRL's names: sums on the device, divided late by counts that the plan knows.

So a figure is exact for the step, however it was split into micro-batches or over GPUs. (TRL averages means of batches,
which weighs the tokens of a batch with few of them more.) Legend of shapes: P pairs of a micro-batch.
"""

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor


class Over(StrEnum):
    """What a sum is divided by."""

    PAIRS = "pairs"
    CHOSEN = "label tokens of the chosen answers"
    REJECTED = "label tokens of the rejected answers"
    LABELS = "label tokens"


OF_PAIRS: dict[str, Over] = {
    "rewards/chosen": Over.PAIRS,
    "rewards/rejected": Over.PAIRS,
    "rewards/accuracies": Over.PAIRS,
    "rewards/margins": Over.PAIRS,
    "logps/chosen": Over.PAIRS,
    "logps/rejected": Over.PAIRS,
}
"""Known from what the losses see."""

OF_TOKENS: dict[str, Over] = {
    "logits/chosen": Over.CHOSEN,
    "logits/rejected": Over.REJECTED,
    "entropy": Over.LABELS,
    "mean_token_accuracy": Over.CHOSEN,
}
"""Known from the head, where it is asked for them."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """What the head saw of one side beside its log-probabilities, summed over each answer's label tokens."""

    mean_logits_P: Tensor
    """The mean over the vocabulary of a token's logits."""

    entropy_P: Tensor
    """Nats."""

    hits_P: Tensor
    """Tokens that were the likeliest."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of a whole step, over all ranks; known from the plan."""

    pairs: int
    chosen_tokens: int
    rejected_tokens: int

    def of(self, over: Over) -> int:
        """The denominator; 1 where nothing was counted, so that a sum of nothing is 0."""
        counted = {
            Over.PAIRS: self.pairs,
            Over.CHOSEN: self.chosen_tokens,
            Over.REJECTED: self.rejected_tokens,
            Over.LABELS: self.chosen_tokens + self.rejected_tokens,
        }
        return max(1, counted[over])


@torch.no_grad()
def pair_sums(rewards_P: tuple[Tensor, Tensor], logps_P: tuple[Tensor, Tensor]) -> Tensor:
    """The sums of `OF_PAIRS`, in its order [6]. Arguments: chosen, rejected."""
    (chosen_P, rejected_P), (chosen_logps_P, rejected_logps_P) = rewards_P, logps_P
    each = (
        chosen_P,
        rejected_P,
        (chosen_P > rejected_P).to(chosen_P.dtype),
        chosen_P - rejected_P,
        chosen_logps_P,
        rejected_logps_P,
    )
    return torch.stack([values_P.sum() for values_P in each]).detach()


@torch.no_grad()
def token_sums(chosen: Predictions, rejected: Predictions) -> Tensor:
    """The sums of `OF_TOKENS`, in its order [4]."""
    return torch.stack(
        [
            chosen.mean_logits_P.sum(),
            rejected.mean_logits_P.sum(),
            chosen.entropy_P.sum() + rejected.entropy_P.sum(),
            chosen.hits_P.sum(dtype=chosen.entropy_P.dtype),
        ]
    )
