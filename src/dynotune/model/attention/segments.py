"""What an attention call needs to know of a row's segments, and how it travels there.

transformers hands every keyword that a decoder's `forward` does not know down to its attention function, and gradient
checkpointing keeps keywords for its recomputation. So the boundaries ride along as keywords, under transformers' own
names where it has them, and no state lies outside of the call.

Legend of shapes: T tokens of the row, S segments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Segments:
    """Boundaries of a row's segments, on the device for kernels and on the host for loops."""

    boundaries_S1: Tensor
    """int32 [S + 1], first 0 and last T. Repeated ends are empty segments."""

    longest: int
    """At least the tokens of the longest segment: sizes a kernel's grid."""

    lengths: tuple[int, ...]
    """Tokens of each segment that is not empty."""

    def keywords(self) -> dict[str, Any]:
        """As keywords of a decoder's `forward`."""
        return {
            "cu_seq_lens_q": self.boundaries_S1,
            "cu_seq_lens_k": self.boundaries_S1,
            "max_length_q": self.longest,
            "max_length_k": self.longest,
            "segment_lengths": self.lengths,
        }


def segments_of(boundaries_S1: Tensor, lengths: Sequence[int]) -> Segments:
    """Segments in few shapes: compiled code sees the count of boundaries and the longest length as powers of two.

    A longest length above the true one launches some blocks that find nothing to do; an empty segment costs as little.
    """
    segments = len(boundaries_S1) - 1
    spare = _power_of_two(segments, least=8) - segments
    if spare:
        boundaries_S1 = F.pad(boundaries_S1, (0, spare), value=sum(lengths))
    return Segments(
        boundaries_S1=boundaries_S1,
        longest=_power_of_two(max(lengths), least=64),
        lengths=tuple(n for n in lengths if n),
    )


def _power_of_two(n: int, least: int) -> int:
    return max(least, 1 << (n - 1).bit_length())
