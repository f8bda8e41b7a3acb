"""What an attention call needs to know of a row's segments, and how it travels there.

transformers hands every keyword that a decoder's `forward` does not know down to its attention function, and gradient
checkpointing keeps keywords for its recomputation. So the boundaries ride along as keywords, under transformers' own
names where it has them, and no state lies outside of the call.

In the ordinary case keys stand where queries do. Where documents share a beginning that is in the row once, keys and values
are gathered first, and have segments of their own.

Legend of shapes: T tokens of the row, S segments, R rows of gathered keys and values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor


class Keys(NamedTuple):
    """Segments of gathered keys, as a kernel needs them. The last query of a segment sees its last key."""

    boundaries_S1: Tensor
    """int32 [S + 1], first 0 and last R. A segment has at least as many keys as queries, and none without queries."""

    longest: int
    """At least the keys of the longest segment."""


@dataclass(frozen=True, slots=True)
class KeySegments:
    """Which rows are gathered for keys and values, and their boundaries on the device and on the host."""

    rows_R: Tensor
    """int64: token of the row that each key is of."""

    boundaries_S1: Tensor
    longest: int
    lengths: tuple[int, ...]
    """Keys of each segment that is not empty."""

    def keywords(self) -> dict[str, Any]:
        """As keywords of a decoder's `forward`, besides those of `Segments`."""
        return {
            "cu_seq_lens_k": self.boundaries_S1,
            "max_length_k": self.longest,
            "key_rows": self.rows_R,
            "key_segment_lengths": self.lengths,
        }


@dataclass(frozen=True, slots=True)
class Segments:
    """Boundaries of a row's segments, on the device for kernels and on the host for loops."""

    boundaries_S1: Tensor
    """int32 [S + 1], first 0 and last T. Repeated ends are empty segments."""

    longest: int
    """At least the tokens of the longest segment: sizes a kernel's grid."""

    lengths: tuple[int, ...]
    """Tokens of each segment that is not empty."""

    gathered: KeySegments | None = None
    """Segments of the keys, where they are others than those of the queries."""

    @property
    def keys(self) -> Keys | None:
        """What a kernel's `attend` is given of `gathered`."""
        return None if self.gathered is None else Keys(self.gathered.boundaries_S1, self.gathered.longest)

    def keywords(self) -> dict[str, Any]:
        """As keywords of a decoder's `forward`."""
        own = {
            "cu_seq_lens_q": self.boundaries_S1,
            "cu_seq_lens_k": self.boundaries_S1,
            "max_length_q": self.longest,
            "max_length_k": self.longest,
            "segment_lengths": self.lengths,
        }
        return own if self.gathered is None else own | self.gathered.keywords()


BLOCK, SOME = 128, 16
"""Tokens of a kernel's block; segments by which their number grows where it is not a power of two."""


def segments_of(boundaries_S1: Tensor, lengths: Sequence[int], fine: bool = False) -> Segments:
    """Segments in few shapes: compiled code sees the count of boundaries and the longest length as powers of two.

    A longest length above the true one launches some blocks that find nothing to do; an empty segment costs as little, and
    there may be as many as there are documents. fine: for kernels that are launched, in steps of a block: of 66 documents up
    to 568 tokens FlashAttention-3's backward took 675 us with powers of two, 473 with what is there, of 127 in 16,384 tokens
    945 and 915 (H200, 28 heads of 128; LOG.md, 2026-11-27).
    """
    return Segments(
        boundaries_S1=_with_spare(boundaries_S1, sum(lengths), fine),
        longest=-(-max(lengths) // BLOCK) * BLOCK if fine else grid_of(max(lengths)),
        lengths=tuple(n for n in lengths if n),
    )


def segments_with_keys(
    boundaries_S1: Tensor,
    lengths: Sequence[int],
    key_rows_R: Tensor,
    key_boundaries_S1: Tensor,
    key_lengths: Sequence[int],
) -> Segments:
    """As `segments_of`, with keys and values gathered from `key_rows_R`. Fields of the keys as in `FamilyBatch`."""
    pairs = zip(lengths, key_lengths, strict=True)
    assert all(queries <= keys and (queries or not keys) for queries, keys in pairs), (lengths, key_lengths)
    gathered = KeySegments(
        rows_R=key_rows_R,
        boundaries_S1=_with_spare(key_boundaries_S1, sum(key_lengths)),
        longest=grid_of(max(key_lengths)),
        lengths=tuple(n for n in key_lengths if n),
    )
    return replace(segments_of(boundaries_S1, lengths), gathered=gathered)


def _with_spare(boundaries_S1: Tensor, end: int, fine: bool = False) -> Tensor:
    """Followed by empty segments. Always a tensor of its own: at another place in a buffer compiled code is made again."""
    segments = len(boundaries_S1) - 1
    spare = -segments % SOME if fine else _power_of_two(segments, least=8) - segments
    return F.pad(boundaries_S1, (0, spare), value=end) if spare else boundaries_S1.clone()


def grid_of(tokens: int) -> int:
    """`longest` of segments of at most so many tokens."""
    return _power_of_two(tokens, least=64)


def grid_of_graphs(tokens: int, longest: int, of_run: int | None = None) -> int:
    """`longest` of segments in graphs of a token count: one for most micro-batches, so that there are few graphs. of_run:
    tokens of the longest document that will come.

    Not the largest possible one: FlashAttention-3's backward of 16 documents in 2,112 tokens took 0.29 ms a layer with a
    grid for documents of 4,096, of which nearly all blocks found nothing to do, 0.19 for 1,024 and 0.16 for 256, of 235
    documents in 32,768 tokens and six heads 1.48 ms for 8,192, 0.29 for 1,024 and 0.16 for 512.
    """
    least = min(grid_of(tokens), 1024)
    return max(grid_of(longest), least if of_run is None else min(least, grid_of(of_run)))


def _power_of_two(n: int, least: int) -> int:
    return max(least, 1 << (n - 1).bit_length())
