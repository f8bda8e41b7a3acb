"""Token arrays in another order, where documents must be contiguous that were not."""

import tempfile

import numpy as np
from numpy.typing import NDArray

from dynotune.data.examples import CHUNK_TOKENS, Examples


def regroup(examples: Examples, order: NDArray[np.int64]) -> Examples:
    """The rows `order` one after the other in new flat arrays.

    These lie in temporary files without a name, so that memory does not grow with the data; the files go with the arrays.
    """
    lengths = examples.lengths[order]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids, labels = _on_disk(int(offsets[-1])), _on_disk(int(offsets[-1]))
    first = 0
    while first < len(order):
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + CHUNK_TOKENS)) - 1)
        positions = np.repeat(examples.starts[order[first:last]] - offsets[first:last], lengths[first:last])
        positions += np.arange(offsets[first], offsets[last])
        for new, old in ((ids, examples.ids), (labels, examples.labels)):
            new[offsets[first] : offsets[last]] = old[positions]
        first = last
    return Examples(ids, labels, offsets, examples.places.take(order), examples.take(order).digest())


def _on_disk(tokens: int) -> NDArray[np.int32]:
    if not tokens:
        return np.zeros(0, np.int32)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.int32, "w+", shape=(tokens,))
