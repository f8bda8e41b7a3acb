"""What a pair is to the reference: a digest of its tokens and label masks, as they are fed, so after truncation.

Legend of shapes: P pairs.
"""

import struct

import numpy as np
import xxhash
from numpy.typing import NDArray

from dynotune.data.examples import Examples

WIDTH = 16
"""Bytes of a digest."""


def pair_digests(examples: Examples) -> NDArray[np.uint8]:
    """XXH3-128 of each pair [P, 16]: lengths, tokens and labels of rows 2p (chosen) and 2p + 1 (rejected).

    The spans of `examples` count, so that another `max_length` or `truncation_mode` makes other pairs of those that it
    cuts, and of those alone. Labels say by `IGNORE` where the mask is.
    """
    assert len(examples) % 2 == 0, len(examples)
    ids, labels = (np.ascontiguousarray(a, "<i4").data.cast("B") for a in (examples.ids, examples.labels))
    spans = np.stack([examples.starts, examples.ends], 1).reshape(-1, 4).tolist()
    pack, digest = struct.Struct("<2q").pack, xxhash.xxh3_128
    found = bytearray()
    for start, end, other_start, other_end in spans:
        one = digest(pack(end - start, other_end - other_start))
        if end == other_start:  # untruncated: the two rows are neighbours
            one.update(ids[4 * start : 4 * other_end])
            one.update(labels[4 * start : 4 * other_end])
        else:
            one.update(ids[4 * start : 4 * end])
            one.update(ids[4 * other_start : 4 * other_end])
            one.update(labels[4 * start : 4 * end])
            one.update(labels[4 * other_start : 4 * other_end])
        found += one.digest()
    return np.frombuffer(found, np.uint8).reshape(-1, WIDTH)


def distinct(digests_P: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first pair of each digest [U], in order, and for every pair which of them it is [P]."""
    numbers: dict[bytes, int] = {}
    which = np.array([numbers.setdefault(digest, len(numbers)) for digest in as_bytes(digests_P)], np.int64)
    firsts = np.full(len(numbers), len(which), np.int64)
    np.minimum.at(firsts, which, np.arange(len(which)))
    return firsts, which


def as_bytes(digests: NDArray[np.uint8]) -> list[bytes]:
    """Each digest as bytes, to look it up by."""
    whole = digests.tobytes()
    return [whole[i : i + WIDTH] for i in range(0, len(whole), WIDTH)]
