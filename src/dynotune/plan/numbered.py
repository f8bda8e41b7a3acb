"""A data set as a plan numbers it: its documents, or its pairs where preferences are learned."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dynotune.config.dpo import DPOConfig
from dynotune.config.whole import WholeConfig
from dynotune.data.pairs import Pairs
from dynotune.data.rows import Place
from dynotune.plan.content import Content
from dynotune.plan.pairs import PairSpans, groups_of, pair_spans
from dynotune.plan.truncation import Spans


@dataclass(frozen=True, slots=True)
class NumberedDocuments:
    """Documents, or pieces of them where they are packed as TRL does."""

    content: Content

    @property
    def spans(self) -> Spans:
        return self.content.spans

    @property
    def rows(self) -> NDArray[np.int64]:
        """Numbers of those that are used, in the order of the data set or bin by bin."""
        return self.content.rows

    @property
    def sets(self) -> None:
        """No two of them are kept together."""

    @property
    def places(self) -> Sequence[Place]:
        """Where each stands in the data."""
        return self.content.examples.places


@dataclass(frozen=True, slots=True)
class NumberedPairs:
    """Pairs."""

    pairs: Pairs
    spans: PairSpans
    rows: NDArray[np.int64]
    """Numbers of those that are used."""

    places: Sequence[Place]

    sets: NDArray[np.int64] | None
    """Number of each row's prompt, where pairs with one prompt are to follow each other."""


def numbered(content: Content, config: WholeConfig, held_out: bool = False) -> NumberedDocuments | NumberedPairs:
    """`content` by the numbers that a plan's rows are."""
    if not isinstance(config, DPOConfig):
        return NumberedDocuments(content)
    examples = content.examples
    pairs = Pairs(examples, content.spans.start, content.spans.end)
    spans = pair_spans(pairs, groups_of(config, held_out))
    rows = content.rows[::2] // 2
    grouped = config.group_by_prompt and not held_out
    prompts = np.arange(len(pairs)) if spans.alike is None else spans.alike.prompts
    return NumberedPairs(pairs, spans, rows, examples.places_of_rows, prompts[rows] if grouped else None)
