"""Groups of pairs: what TRL calls a batch, `per_device_train_batch_size` pairs that follow each other in a step.

Losses that sort, or that average over tokens, are defined on it. A step's groups follow from its pairs alone, so they
are the same on any number of GPUs and in any layout; the last group of a short step holds fewer pairs.
"""

import numpy as np
from numpy.typing import NDArray


def group_sizes(pairs: int, size: int) -> tuple[int, ...]:
    """Pairs in each group of a step of `pairs` pairs; `size` is `per_device_train_batch_size`."""
    assert size > 0
    whole, rest = divmod(pairs, size)
    return (size,) * whole + ((rest,) if rest else ())


def token_shares(chosen_lengths_P: NDArray[np.integer], size: int) -> NDArray[np.float64]:
    """Pairs over chosen label tokens of each pair's group [P], for the pairs of a whole step in their order.

    Weighted by it, the sum of the chosen answers' negative log-likelihoods over a group, divided by its pairs, is their
    mean over its label tokens. A group without label tokens counts 0.
    """
    starts = np.arange(0, len(chosen_lengths_P), size)
    sizes = np.asarray(group_sizes(len(chosen_lengths_P), size), np.int64)
    if not len(starts):
        return np.zeros(0)
    tokens = np.add.reduceat(chosen_lengths_P.astype(np.int64), starts)
    shares = np.divide(sizes, tokens, out=np.zeros(len(sizes)), where=tokens > 0)
    return np.repeat(shares, sizes)


def in_tail(sequences_N: NDArray[np.integer], lengths_Q: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which label tokens stand behind the length of their pair's shorter answer [N].

    Args:
        sequences_N: sequence of each label token (2p chosen, 2p + 1 rejected). The tokens of one sequence are in order;
            sequences may be interleaved, and each is there whole.
        lengths_Q: label tokens of each sequence.
    """
    order = np.argsort(sequences_N, kind="stable")
    firsts = np.concatenate([[0], np.cumsum(lengths_Q)[:-1]]) if len(lengths_Q) else np.zeros(0, np.int64)
    place = np.empty(len(sequences_N), np.int64)
    place[order] = np.arange(len(sequences_N)) - firsts[sequences_N[order]]
    shorter_P = lengths_Q.reshape(-1, 2).min(axis=1)
    behind_N: NDArray[np.bool_] = place >= shorter_P[sequences_N // 2]
    return behind_N
