"""What the head is compared with: every row of logits, the objective's own autograd, one document at a time.

Legend of shapes: T tokens, D hidden.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.data.examples import IGNORE
from dynotune.model.packed import PackedBatch, pack
from dynotune.objectives.sft import Objective, SFTObjective

VARIANTS = [{}, {"label_smoothing_factor": 0.2}, {"loss_type": "dft"}]


def objective(**settings: object) -> SFTObjective:
    return SFTObjective(SFTObjectiveConfig.model_validate(settings))


def labelled(
    lengths: Sequence[int], vocabulary: int, share: float = 0.5, seed: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random documents, of which about `share` of the tokens are labels."""
    random = np.random.default_rng(seed)
    documents = []
    for n in lengths:
        ids = random.integers(0, vocabulary, n).astype(np.int32)
        documents.append((ids, np.where(random.random(n) < share, ids, IGNORE).astype(np.int32)))
    return documents


def batch_of(documents: Sequence[tuple[np.ndarray, np.ndarray]], tokens: int) -> PackedBatch:
    return pack(documents, tokens, torch.device("cpu"))


def plain_loss(
    documents: Sequence[tuple[np.ndarray, np.ndarray]],
    hidden_TD: Tensor,
    logits_of: Callable[[Tensor], Tensor],
    objective: Objective,
) -> tuple[Tensor, Tensor]:
    """Summed over the documents; `logits_of` turns rows of hidden states into logits."""
    device = hidden_TD.device
    loss, sums, start = torch.zeros((), device=device), torch.zeros(2, device=device), 0
    for ids, labels in documents:
        logits_TV = logits_of(hidden_TD[start : start + len(ids)])
        one, more = objective(logits_TV, torch.from_numpy(labels).long().to(device))
        loss, sums, start = loss + one, sums + more, start + len(ids)
    return loss, sums
