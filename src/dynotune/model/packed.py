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
from dynotune.model.one_copy import Index, apart, together

Document = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Ids and labels, unshifted, with `IGNORE` where there is no loss."""


END = np.array([IGNORE], np.int32)
"""What a document's last token predicts."""


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """What the packed forward pass and the labelled-rows head need. All indices are into the T tokens."""

    ids_T: Tensor
    """int64. Padding holds token 0."""

    positions_T: Tensor
    """int64. Starts again at 0 with each document; 0 throughout the padding."""

    boundaries_S1: Tensor
    """int32 [S + 1]: segment s holds tokens boundaries[s] to boundaries[s + 1]; first 0, last T."""

    predictors_N: Tensor
    """int64. Tokens whose hidden state predicts a label: the one before each label token."""

    targets_N: Tensor
    """int64. The label tokens, aligned with `predictors_N`: what follows them in their documents."""

    lengths: tuple[int, ...]
    """Tokens of each segment, on the host: S of them."""

    documents: int
    """How many of the segments are documents."""

    @property
    def longest(self) -> int:
        """Tokens of the longest segment."""
        return max(self.lengths)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Documents laid out on the host. Arrays as in `PackedBatch`."""

    ids_T: NDArray[np.int64]
    positions_T: NDArray[np.int64]
    predictors_N: NDArray[np.int64]
    targets_N: NDArray[np.int64]
    boundaries_S1: NDArray[np.int32]
    lengths: tuple[int, ...]
    documents: int

    def buffer(self, pin: bool) -> Tensor:
        """Everything in one int64 tensor, pinned where asked, so that it travels in one copy."""
        return together(self.arrays, pin)

    def unpack(self, buffer: Tensor) -> PackedBatch:
        """`buffer`, wherever it is by now, as the tensors that it holds: views, so that nothing is launched."""
        return self.of(apart(buffer, self.arrays))

    def of(self, tensors: Sequence[Tensor]) -> PackedBatch:
        """`tensors` like `arrays`, as a batch."""
        ids_T, positions_T, ends_S1, predictors_N, targets_N = tensors
        return PackedBatch(ids_T, positions_T, ends_S1, predictors_N, targets_N, self.lengths, self.documents)

    @property
    def arrays(self) -> list[Index]:
        """What travels, in the order of `PackedBatch`."""
        return [self.ids_T, self.positions_T, self.boundaries_S1, self.predictors_N, self.targets_N]


def lay_side_by_side(documents: Sequence[Document], tokens: int, *, last: bool = True) -> SideBySide:
    """Lay `documents` out in `tokens` tokens, the rest of which is padding.

    last: whether the last token of each is there, which predicts nothing and which nothing sees. Without it a document of
    129 tokens is 128. A document of one token keeps it.
    """
    lengths = [len(ids) if last or len(ids) < 2 else len(ids) - 1 for ids, _ in documents]
    real = sum(lengths)
    assert real <= tokens, (real, tokens)
    segments = lengths + ([tokens - real] if tokens > real else [])
    starts = np.zeros(len(segments) + 1, np.int64)
    np.cumsum(segments, out=starts[1:])
    ids_T, next_T = np.zeros(tokens, np.int64), np.full(tokens, IGNORE, np.int64)
    if documents:
        np.concatenate([ids[:n] for (ids, _), n in zip(documents, lengths, strict=True)], out=ids_T[:real])
        # Nothing precedes a document's first token, and nothing follows its last.
        nexts = ((labels[1:], END[: n + 1 - len(labels)]) for (_, labels), n in zip(documents, lengths, strict=True))
        np.concatenate([part for parts in nexts for part in parts], out=next_T[:real])
    predictors_N = np.flatnonzero(next_T != IGNORE)
    positions_T = np.arange(tokens) - np.repeat(starts[:-1], segments)
    positions_T[real:] = 0  # a long padding must not outrun a table of positions, nor stretch a rotary embedding
    return SideBySide(
        ids_T=ids_T,
        positions_T=positions_T,
        predictors_N=predictors_N,
        targets_N=next_T[predictors_N],
        boundaries_S1=starts.astype(np.int32),
        lengths=tuple(segments),
        documents=len(lengths),
    )


def pack(documents: Sequence[Document], tokens: int, device: torch.device) -> PackedBatch:
    """`documents` laid out in `tokens` tokens, on the device."""
    laid = lay_side_by_side(documents, tokens)
    return laid.unpack(laid.buffer(pin=False).to(device))
