"""How many rows meet the head at once.

A row holds the logits of the whole vocabulary, so nothing is summed over parts of it in low precision, and a chunk is large
enough that the matrix products run at full speed. Legend of shapes: N rows in all, V vocabulary.
"""

import math

CHUNK_BYTES = 5 << 28
"""Of logits at once: 4,096 rows of a vocabulary of 152,064 in bfloat16."""

_MULTIPLE = 128  # rows: a matrix product's tile


def chunks(n: int, vocabulary: int, itemsize: int, chunk_bytes: int = CHUNK_BYTES) -> list[tuple[int, int]]:
    """Chunks (first, end) that cover `n` rows in order: as few as the budget allows, of even size.

    Sizes are multiples of 128 rows but for the last. `itemsize` is that of a logit, in bytes. No rows make no chunk.
    """
    most = max(_MULTIPLE, chunk_bytes // (vocabulary * itemsize) // _MULTIPLE * _MULTIPLE)
    even = math.ceil(math.ceil(n / max(1, math.ceil(n / most))) / _MULTIPLE) * _MULTIPLE
    return [(first, min(first + even, n)) for first in range(0, n, max(1, even))]
