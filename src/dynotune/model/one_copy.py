"""Index arrays of a micro-batch in one tensor, so that they reach the device in one copy and are views there."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Index = NDArray[np.int64] | NDArray[np.int32]


def together(arrays: Sequence[Index], pin: bool) -> Tensor:
    """One-dimensional `arrays` one after another, as int64; the buffer is pinned where asked."""
    words = [len(_as_words(array)) for array in arrays]
    buffer = torch.empty(sum(words), dtype=torch.int64, pin_memory=pin)
    np.concatenate([np.empty(0, np.int64), *map(_as_words, arrays)], out=buffer.numpy())
    return buffer


def apart(buffer: Tensor, arrays: Sequence[Index]) -> list[Tensor]:
    """`buffer`, wherever it is by now, as tensors like `arrays`: views, so that nothing is launched."""
    found, at = [], 0
    for array in arrays:
        words = -(-array.nbytes // 8)
        part = buffer[at : at + words]
        found.append(part if array.dtype == np.int64 else part.view(torch.int32)[: len(array)])
        at += words
    assert at == len(buffer), (at, len(buffer))
    return found


def _as_words(array: Index) -> NDArray[np.int64]:
    """int32 in pairs, filled up by a zero."""
    if array.dtype == np.int64:
        return np.asarray(array, np.int64)
    assert array.dtype == np.int32, array.dtype
    return np.append(array, np.zeros(len(array) % 2, np.int32)).view(np.int64)
