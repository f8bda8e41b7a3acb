"""A micro-batch on the device: documents side by side, each seeing itself alone.

Legend of shapes: T tokens of the micro-batch, padding included; S segments: the documents and, where there is padding, one
more that holds it; N label tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynotune.data.examples import IGNORE


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """What the packed forward pass and the labelled-rows head need. All indices are into the T tokens."""

    ids_T: Tensor
    """int64. Padding holds token 0."""

    positions_T: Tensor
    """int64. Starts again at 0 with each segment."""

    boundaries_S1: Tensor
    """int32 [S + 1]: segment s holds tokens boundaries[s] to boundaries[s + 1]; first 0, last T."""

    predictors_N: Tensor
    """int64. Tokens whose hidden state predicts a label: the one before each label token."""

    targets_N: Tensor
    """int64. The label tokens, aligned with `predictors_N`."""

    lengths: tuple[int, ...]
    """Tokens of each segment, on the host: S of them."""

    documents: int
    """How many of the segments are documents."""

    @property
    def longest(self) -> int:
        """Tokens of the longest segment."""
        return max(self.lengths)


def pack(
    documents: Sequence[tuple[NDArray[np.int32], NDArray[np.int32]]], tokens: int, device: torch.device
) -> PackedBatch:
    """Lay `documents`, pairs of ids and labels (unshifted, `IGNORE` where no loss), out in `tokens` tokens.

    The reference: one copy an array. Training builds the same in pinned memory ahead of time.
    """
    lengths = [len(ids) for ids, _ in documents]
    real = sum(lengths)
    assert real <= tokens, (real, tokens)
    ids_T, labels_T = np.zeros(tokens, np.int64), np.full(tokens, IGNORE, np.int64)
    if documents:
        ids_T[:real] = np.concatenate([ids for ids, _ in documents])
        labels_T[:real] = np.concatenate([labels for _, labels in documents])
    segments = lengths + ([tokens - real] if tokens > real else [])
    starts = np.concatenate([[0], np.cumsum(segments)]).astype(np.int64)
    labels_T[starts[:-1]] = IGNORE  # nothing precedes a document's first token
    targets = np.flatnonzero(labels_T != IGNORE)
    positions_T = np.arange(tokens) - np.repeat(starts[:-1], segments)

    def to(array: NDArray[np.integer]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return PackedBatch(
        ids_T=to(ids_T),
        positions_T=to(positions_T),
        boundaries_S1=to(starts.astype(np.int32)),
        predictors_N=to(targets - 1),
        targets_N=to(labels_T[targets]),
        lengths=tuple(segments),
        documents=len(lengths),
    )
