"""Log-probabilities of sequences, from the hidden states before their label tokens.

Only label tokens meet the head, in chunks, and full-precision logits of a batch never exist.
Legend of shapes: T tokens of the micro-batch, D hidden, V vocabulary, N label tokens, Q sequences.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dynotune.model.head.by_sequence import FormedBySequence, RecomputedBySequence
from dynotune.model.head.head import Head
from dynotune.model.head.observed import Observed, Scaled
from dynotune.model.head.replay import Replay
from dynotune.model.head.rows import Rows
from dynotune.model.head.scatter import summed
from dynotune.model.head.walk import Done, Work
from dynotune.objectives.row_loss import RowLoss


@dataclass(frozen=True, slots=True)
class SequenceScores:
    """Sums over the label tokens of each sequence, float32 (float64 where the hidden states are). Zeros without any."""

    logps_Q: Tensor
    """Nats, with gradient."""

    hits_Q: Tensor
    """Label tokens that have the largest logit. The first of equal ones has it."""

    entropies_Q: Tensor
    """Nats."""

    tails_Q: Tensor | None = None
    """The part of `logps_Q` on the tokens that were named as a tail, with gradient."""

    mean_logits_Q: Tensor | None = None
    """Of the mean over the vocabulary of a token's logits, scaled and soft-capped: TRL's `logits/*`, not yet divided."""

    aligned_logps_Q: Tensor | None = None
    """Of log p - log(sum over the vocabulary of p squared): what WPO's weights are made of (arXiv 2406.11827, eq. 2)."""


def sequence_scores(
    head: Head,
    hidden_TD: Tensor,
    predictors_N: Tensor,
    targets_N: Tensor,
    sequences_N: Tensor,
    sequences: int,
    *,
    tails_N: Tensor | None = None,
    mean_logits: bool = False,
    aligned_logps: bool = False,
) -> SequenceScores:
    """The log-probability of each of `sequences` sequences, with gradient, and what was asked for beside it.

    hidden_TD: what the inner model returns, in any floating precision. predictors_N: int64, the row of `hidden_TD` that
    predicts a label token; it may repeat, where sequences share their beginning. targets_N: int64, the label tokens.
    sequences_N: int64, to which sequence each belongs. tails_N: int64, 1 for the tokens that make `tails_Q`, else 0 (for
    LD-DPO those behind the length of the pair's shorter answer). Sums are made in float64 in an order that does not vary,
    and the host never waits.

    **A head that trains nothing** (LoRA elsewhere): gradients of each token's log-probability by its row are formed in the
    forward pass and kept, [N, D] in float32; the backward pass scales them. Two products a chunk, 4DVN FLOPs, none again.

    **A head that trains something**: its gradient needs the coefficients before the product that sums over tokens, and they
    depend on all log-probabilities of a pair. So the forward pass keeps nothing and the backward pass forms logits again:
    1 + 3 products a chunk, 8DVN FLOPs against the 6DVN of a loss that is known token by token, and one more pass over a
    chunk's logits, to scale their gradient. Keeping that gradient from the forward pass instead would save 2DVN and take 2NV
    bytes in bfloat16, 4.6 GiB for 16,384 label tokens of a vocabulary of 152,064, when memory is at its peak.

    One backward a call. Without gradients to form one product a chunk, 2DVN FLOPs.
    """
    forms = torch.is_grad_enabled()
    trained = head.trained(hidden_TD) if forms else []
    rows: Rows = head.row_function(hidden_TD)
    observed = None
    if mean_logits or aligned_logps:
        observed = rows = Observed(
            rows, len(targets_N), hidden_TD, mean_logits=mean_logits, log_sum_squares=aligned_logps
        )
    if tails_N is not None:  # a sequence in two: its tail is one of its own, until the end
        sequences_N = sequences_N + tails_N * sequences
    parts = sequences if tails_N is None else 2 * sequences
    replay = Replay(head.module, hidden_TD.device)
    done = head.walk(Work(hidden_TD, predictors_N, targets_N, RowLoss(), head.logits, rows, form=forms and not trained))
    nll_N, hits_N, entropies_N = done.rows_3N
    columns = [-nll_N, hits_N, entropies_N]
    if observed is not None and observed.mean_logits_N is not None:
        columns.append(observed.mean_logits_N)
    if observed is not None and observed.log_sum_squares_N is not None:
        columns.append(-nll_N - observed.log_sum_squares_N)
    sums_QK = summed(torch.stack(columns, 1).double(), sequences_N, parts).to(nll_N.dtype)
    logps_Q, hits_Q, entropies_Q, *more = sums_QK.unbind(1)
    if done.gradient_ND is not None:
        logps_Q = FormedBySequence.apply(  # type: ignore[no-untyped-call]
            logps_Q, predictors_N, sequences_N, done.gradient_ND, hidden_TD
        )
    elif trained:
        again = _again(head, hidden_TD, predictors_N, targets_N, replay)
        logps_Q = RecomputedBySequence.apply(  # type: ignore[no-untyped-call]
            logps_Q, predictors_N, sequences_N, again, hidden_TD, *trained
        )
    tails_Q = None if tails_N is None else logps_Q[sequences:]
    logps_Q, hits_Q, entropies_Q, *more = (
        sums_Q if tails_N is None else sums_Q[:sequences] + sums_Q[sequences:]
        for sums_Q in (logps_Q, hits_Q, entropies_Q, *more)
    )
    return SequenceScores(
        logps_Q,
        hits_Q,
        entropies_Q,
        tails_Q,
        mean_logits_Q=more.pop(0) if mean_logits else None,
        aligned_logps_Q=more.pop(0) if aligned_logps else None,
    )


def _again(
    head: Head, hidden_TD: Tensor, predictors_N: Tensor, targets_N: Tensor, replay: Replay
) -> Callable[[Tensor], Done]:
    # The row of the graph that autograd builds must not hold the graph itself.
    rows_TD = hidden_TD.detach().requires_grad_(hidden_TD.requires_grad)

    def again(factors_N: Tensor) -> Done:
        rows = Scaled(head.row_function(rows_TD), factors_N)
        with replay.same():
            return head.walk(Work(rows_TD, predictors_N, targets_N, RowLoss(), head.logits, rows, form=True))

    return again
