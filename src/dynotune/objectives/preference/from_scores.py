"""From what the head says of sequences to what a preference objective asks of pairs.

Legend of shapes: Q sequences, P = Q / 2 pairs; sequence 2p is the chosen answer of pair p, 2p + 1 the rejected one.
"""

from typing import TYPE_CHECKING

from torch import Tensor

from dynotune.objectives.preference.logged import Predictions
from dynotune.objectives.preference.pairs import Answers, Pairs

if TYPE_CHECKING:
    from dynotune.model.head.sequences import SequenceScores


def pairs_of(
    scores: "SequenceScores",
    lengths_Q: Tensor,
    reference_Q: Tensor | None = None,
    reference_tails_Q: Tensor | None = None,
    *,
    groups: tuple[int, ...] | None = None,
    token_shares_P: Tensor | None = None,
) -> Pairs:
    """The pairs of a micro-batch, with what `PreferenceObjective.needs` names.

    scores: by the policy; with `tails_N` for `Need.TAILS`, with `aligned_logps` for `Need.AGREEMENT`. lengths_Q: label
    tokens. reference_Q, reference_tails_Q: `logps_Q` and `tails_Q` by the reference. The other two: see `Pairs`.
    """
    chosen, rejected = (
        Answers(
            scores.logps_Q[side::2],
            lengths_Q[side::2],
            _every_other(reference_Q, side),
            tails_P=_every_other(scores.tails_Q, side),
            reference_tails_P=_every_other(reference_tails_Q, side),
            agreement_P=_every_other(scores.aligned_logps_Q, side),
        )
        for side in (0, 1)
    )
    return Pairs(chosen, rejected, groups=groups, token_shares_P=token_shares_P)


def predictions_of(scores: "SequenceScores") -> tuple[Predictions, Predictions]:
    """What is logged of the chosen and of the rejected answers' tokens. `scores` was asked for `mean_logits`."""
    logits_Q, entropies_Q, hits_Q = scores.mean_logits_Q, scores.entropies_Q, scores.hits_Q
    assert logits_Q is not None, "the head was not asked for mean logits"
    chosen, rejected = (Predictions(logits_Q[side::2], entropies_Q[side::2], hits_Q[side::2]) for side in (0, 1))
    return chosen, rejected


def _every_other(values_Q: Tensor | None, side: int) -> Tensor | None:
    return None if values_Q is None else values_Q[side::2]
