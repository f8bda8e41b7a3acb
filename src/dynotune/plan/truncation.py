"""Which part of each example is trained on under `max_length`.

Truncation belongs to the plan and not to the tokens: the same tokenised data serves every `max_length`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dynotune.data.examples import Examples

if TYPE_CHECKING:
    from dynotune.plan.together import Together


class Units(Protocol):
    """What a plan must know of what it lays out, documents or pairs. Arrays are [rows]."""

    @property
    def label_tokens(self) -> NDArray[np.int64]:
        """Tokens that carry loss."""
        ...

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens that these rows take in a micro-batch."""
        ...

    def sequence_lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of every document of these rows, whole and by itself, however much of them is computed: two of a pair."""
        ...

    def attention_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lengths of documents that attend to themselves, and lengths of those parts of them that are counted twice so, in a
        micro-batch that holds these rows."""
        ...

    @property
    def group(self) -> int:
        """How many rows that follow each other in a step may depend on each other, from its first row on."""
        ...

    def together(self, rows: NDArray[np.int64], most: int | None) -> "Together | None":
        """How the rows of a step stand together. None where none of any step do: each is a unit by itself.

        most: tokens of the largest micro-batch; None on the plain path.
        """
        ...

    def largest(self, rows: NDArray[np.int64], steps: NDArray[np.int64]) -> int:
        """Tokens, at most, of what is never divided, over rows in their order; a step begins at each of `steps`
        [steps + 1]."""
        ...


@dataclass(frozen=True, slots=True)
class Spans:
    """The part of every example that is used, as positions in the flat arrays. All arrays are [rows]."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    label_tokens: NDArray[np.int64]
    """Tokens that carry loss. The first token of a span has no predecessor, so a label on it does not count."""

    cut_tokens: NDArray[np.int64]
    """Tokens that `max_length` removed."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Whole, whatever is computed of them."""
        return self.end - self.start

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of the documents at `rows`, without the lengths of all others."""
        return self.sequence_lengths_of(rows)

    def sequence_lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.end[rows] - self.start[rows]

    def attention_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self.lengths_of(rows), np.zeros(0, np.int64)

    @property
    def group(self) -> int:
        return 1

    def together(self, rows: NDArray[np.int64], most: int | None) -> None:
        return None

    def largest(self, rows: NDArray[np.int64], steps: NDArray[np.int64]) -> int:
        return int(self.lengths_of(rows).max())


@dataclass(frozen=True, slots=True)
class Predicting(Spans):
    """The same where a document's last token is not computed: nothing sees it, and what it would predict is not there."""

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return predicting(self.sequence_lengths_of(rows))


def as_predicting(units: Units) -> Units:
    """`units` without last tokens, where they are documents."""
    return _as(Predicting, units)


def as_whole(units: Units) -> Units:
    """`units` with every token of documents."""
    return _as(Spans, units)


def _as(kind: type[Spans], units: Units) -> Units:
    if not isinstance(units, Spans):
        return units
    return kind(units.start, units.end, units.label_tokens, units.cut_tokens)


def predicting(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens of documents of so many without their last ones. One of a single token, which only packing makes, keeps it."""
    return np.maximum(lengths - 1, np.minimum(lengths, 1))


def truncate(examples: Examples, max_length: int | None, mode: str) -> Spans:
    """Cut every example to `max_length` tokens, keeping its start (`keep_start`) or its end (`keep_end`).

    Of a pair each side is cut for itself, with the prompt, as TRL does: so `keep_end` may cut the prompts of its sides to
    different lengths, and what both begin with is to be looked for in the spans.
    """
    start, end = examples.starts, examples.ends
    full = end - start
    if max_length is not None:
        if mode == "keep_start":
            end = np.minimum(end, start + max_length)
        else:
            assert mode == "keep_end", mode
            start = np.maximum(start, end - max_length)
    label_tokens = examples.label_counts(np.minimum(start + 1, end), end)
    return Spans(start, end, label_tokens, full - (end - start))


def equal_sides(examples: Examples, spans: Spans, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of `pairs` whose two sides are the same tokens within their spans."""
    start, end, ids = spans.start, spans.end, examples.ids
    chosen, rejected = 2 * pairs, 2 * pairs + 1
    # Most pairs differ in length or in their last token, and need no look at all tokens.
    alike = (spans.lengths_of(chosen) == spans.lengths_of(rejected)) & (ids[end[chosen] - 1] == ids[end[rejected] - 1])
    found = [
        pair
        for pair in pairs[alike].tolist()
        if np.array_equal(ids[start[2 * pair] : end[2 * pair]], ids[start[2 * pair + 1] : end[2 * pair + 1]])
    ]
    return np.array(found, np.int64)
