"""What a pair is to the reference: a digest of its tokens and label masks, as they are fed, so after truncation.

Legend of shapes: P pairs.
"""

import struct

import numpy as np
import xxhash
from numpy.typing import NDArray

from dynotune.data.pairs import Pairs

WIDTH = 16
"""Bytes of a digest."""


def pair_digests(pairs: Pairs) -> NDArray[np.uint8]:
    """XXH3-128 of each pair [P, 16]: lengths, tokens and labels of the chosen and of the rejected side.

    The part of a side that is used counts, so that another `max_length` or `truncation_mode` makes other pairs of those
    that it cuts, and of those alone. Labels say by `IGNORE` where the mask is.
    """
    examples = pairs.examples
    ids, labels = (np.ascontiguousarray(a, "<i4").data.cast("B") for a in (examples.ids, examples.labels))
    spans = np.stack([pairs.start, pairs.end], 1).reshape(-1, 4).tolist()
    pack, digest = struct.Struct("<2q").pack, xxhash.xxh3_128
    found = bytearray()
    for start, end, other_start, other_end in spans:
        one = digest(pack(end - start, other_end - other_start))
        if end == other_start:  # untruncated: the two sides are neighbours
            one.update(ids[4 * start : 4 * other_end])
            one.update(labels[4 * start : 4 * other_end])
        else:
            one.update(ids[4 * start : 4 * end])
            one.update(ids[4 * other_start : 4 * other_end])
            one.update(labels[4 * start : 4 * end])
            one.update(labels[4 * other_start : 4 * other_end])
        found += one.digest()
    return np.frombuffer(found, np.uint8).reshape(-1, WIDTH)


def by_prompt(pairs: Pairs) -> NDArray[np.int64]:
    """All pairs [P] in order, but those with the same prompt behind the first of them, to be laid out with it once."""
    _, firsts, which_P = np.unique(pairs.prompt_digests(), return_index=True, return_inverse=True)
    return np.argsort(firsts[which_P], kind="stable")


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
