"""Log-probabilities of sequences from logits that are there, by a plain formula and autograd: what `sequence_scores` equals.

Legend of shapes: N label tokens, V vocabulary, Q sequences.
"""

import torch
from torch import Tensor

from dynotune.model.head.scatter import summed
from dynotune.model.head.sequences import SequenceScores


def plain_sequence_scores(
    logits_NV: Tensor, targets_N: Tensor, sequences_N: Tensor, sequences: int, tails_N: Tensor | None = None
) -> SequenceScores:
    """What the rows of logits that predict label tokens say of their sequences, in float32 (float64). Arguments and results
    otherwise as of `sequence_scores`, with everything that it may be asked for."""
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    logps_NV = logits_NV.log_softmax(-1)
    logps_N = logps_NV.gather(-1, targets_N[:, None])[:, 0]
    columns = [logps_N]
    if tails_N is not None:
        columns.append(logps_N * tails_N)
    with torch.no_grad():
        columns.append((logits_NV.argmax(-1) == targets_N).to(logps_N.dtype))
        columns.append(-(logps_NV.exp() * logps_NV).sum(-1))
        columns.append(logits_NV.mean(-1))
        columns.append(logps_N - (2 * logps_NV).logsumexp(-1))
    sums_QK = summed(torch.stack(columns, 1).double(), sequences_N, sequences).to(logps_N.dtype)
    logps_Q, *tails_Q, hits_Q, entropies_Q, mean_logits_Q, aligned_Q = sums_QK.unbind(1)
    return SequenceScores(
        logps_Q,
        hits_Q.detach(),
        entropies_Q.detach(),
        tails_Q[0] if tails_Q else None,
        mean_logits_Q=mean_logits_Q.detach(),
        aligned_logps_Q=aligned_Q.detach(),
    )
