"""The order in which examples are seen: a function of seed and epoch, never of world size or micro-batching."""

import numpy as np
from numpy.typing import NDArray


def epoch_order(rows: int, epoch: int, seed: int, strategy: str) -> NDArray[np.int64]:
    """The order of one epoch [rows]. `random`: a permutation that depends on `seed` and `epoch` alone."""
    if strategy == "sequential":
        return np.arange(rows)
    assert strategy == "random", strategy
    return np.random.default_rng([seed, epoch]).permutation(rows)


def sets_together(order: NDArray[np.int64], sets: NDArray[np.int64]) -> NDArray[np.int64]:
    """`order` with the rows of a set behind the first of them, in the order that they have. sets: number of each row's."""
    _, first, which = np.unique(sets[order], return_index=True, return_inverse=True)
    return order[np.argsort(first[which], kind="stable")]
