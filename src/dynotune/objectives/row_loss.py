"""The loss of one row of logits in explicit form: what the labelled-rows head needs to form gradients itself.

Legend of shapes: N label tokens, V vocabulary.
"""

from dataclasses import dataclass

ROW_SUMS: tuple[str, ...] = ("mean_token_accuracy", "entropy")
"""What is known of a row beside its loss, in this order: whether its largest logit is the target's; nats of entropy."""


@dataclass(frozen=True, slots=True)
class RowLoss:
    """One family holds every loss of SFT. With p = softmax(x), target t and e = `smoothing`:

        loss     = w * ((1 - e) * -log p_t + e * mean over j of -log p_j)
        gradient = w * (p_j - (1 - e) * [j = t] - e / V)        by x_j

    where w is 1, or p_t, taken as a constant, with `by_probability`. The negative log-likelihood is e = 0, w = 1.
    """

    smoothing: float = 0.0
    by_probability: bool = False
