"""What is to be known of all pairs of a data set at once: their sides, what these share, which have the same prompt.

All of it is counted in flat arrays, a few million tokens at a time, so that a million pairs need seconds and no memory for
their tokens.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from dynotune.data.examples import CHUNK_TOKENS, IGNORE, Example, Examples

Ints = NDArray[np.int64]


class Pairs:
    """The pairs of `examples`: pair p is the documents 2p (chosen) and 2p + 1 (rejected), each with the prompt.

    start, end: [documents] the part of each document that is used, as positions in the flat arrays (`Spans` of the plan);
    all of it by default.
    """

    def __init__(self, examples: Examples, start: Ints | None = None, end: Ints | None = None) -> None:
        assert examples.per_example == 2
        self.examples = examples
        self.start, self.end = (examples.starts, examples.ends) if start is None or end is None else (start, end)

    def __len__(self) -> int:
        return self.examples.rows

    def taken(self, rows: Ints) -> "Pairs":
        """These pairs, in this order, over the same token arrays."""
        documents = self.examples.documents_of(rows)
        return Pairs(self.examples.take_rows(rows), self.start[documents], self.end[documents])

    def __getitem__(self, pair: int) -> tuple[Example, Example]:
        """The chosen and the rejected side, as far as they are used."""
        if not 0 <= pair < len(self):
            raise IndexError(f"pair {pair} of {len(self)}")
        chosen, rejected = (
            Example(
                self.examples.ids[self.start[row] : self.end[row]],
                self.examples.labels[self.start[row] : self.end[row]],
                self.examples.places[row],
            )
            for row in (2 * pair, 2 * pair + 1)
        )
        return chosen, rejected

    @cached_property
    def lengths(self) -> Ints:
        """Tokens of both sides [pairs, 2], chosen first."""
        return (self.end - self.start).reshape(-1, 2)

    @cached_property
    def label_counts(self) -> Ints:
        """Label tokens that carry loss, of both sides [pairs, 2]: a label on a side's first token has no predecessor."""
        return self.examples.label_counts(np.minimum(self.start + 1, self.end), self.end).reshape(-1, 2)

    @cached_property
    def shared(self) -> Ints:
        """Tokens that both sides begin with [pairs]: the prompt, and what the answers have in common at their beginning.

        It may be all of a side, where that is the beginning of the other.
        """
        shorter = self.lengths.min(1)
        found = np.empty(len(self), np.int64)
        ids = self.examples.ids
        for pairs, base in _in_chunks(shorter):
            lengths = shorter[pairs]
            inside = np.arange(int(lengths.sum())) - np.repeat(base, lengths)
            one, other = (ids[np.repeat(self.start[side::2][pairs], lengths) + inside] for side in (0, 1))
            found[pairs] = _first(np.flatnonzero(one != other), base, lengths)
        return found

    @cached_property
    def prompt_lengths(self) -> Ints:
        """Tokens of the chosen side before its first label [pairs]; all of them where no label is left."""
        start, lengths = self.start[::2], self.lengths[:, 0]
        found = np.empty(len(self), np.int64)
        for pairs, base in _in_chunks(lengths):
            own = lengths[pairs]
            at = np.repeat(start[pairs] - base, own) + np.arange(int(own.sum()))
            found[pairs] = _first(np.flatnonzero(self.examples.labels[at] != IGNORE), base, own)
        return found

    def prompt_digests(self) -> NDArray[np.uint64]:
        """XXH3-64 of each pair's prompt tokens [pairs]: pairs with the same digest have the same prompt.

        Two different prompts of n collide with a probability of about n^2 / 2^65: whoever shares work between pairs looks at
        their tokens, too.
        """
        ids = np.ascontiguousarray(self.examples.ids, "<i4").data.cast("B")
        starts = 4 * self.start[::2]
        ends = starts + 4 * self.prompt_lengths
        return np.array(
            [xxh3_64_intdigest(ids[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)], np.uint64
        )

    def side_digests(self, pairs: Ints) -> NDArray[np.uint64]:
        """XXH3-64 of the tokens of both sides of these pairs [n, 2], as of `prompt_digests`."""
        ids = np.ascontiguousarray(self.examples.ids, "<i4").data.cast("B")
        bounds = np.stack([4 * self.start, 4 * self.end], 1).reshape(-1, 2, 2)[pairs].reshape(-1, 2).tolist()
        return np.array([xxh3_64_intdigest(ids[a:b]) for a, b in bounds], np.uint64).reshape(-1, 2)


def _in_chunks(lengths: Ints) -> Iterator[tuple[slice, Ints]]:
    """Neighbouring pairs of up to `CHUNK_TOKENS` tokens, one pair at least, and where each begins among their tokens."""
    ends = np.cumsum(lengths)
    first = 0
    while first < len(lengths):
        before = int(ends[first] - lengths[first])
        last = max(first + 1, int(np.searchsorted(ends, before + CHUNK_TOKENS, side="right")))
        yield slice(first, last), ends[first:last] - lengths[first:last] - before
        first = last


def _first(positions: Ints, base: Ints, lengths: Ints) -> Ints:
    """How far into each span from `base` the first of the ascending `positions` stands; its length where none does."""
    at = np.searchsorted(positions, base)
    beyond = np.append(positions, np.iinfo(np.int64).max)[at]
    return np.minimum(beyond - base, lengths)
