"""Which examples a probe takes: those on which mistakes show, and a few between them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dynotune.data.examples import IGNORE, Examples
from dynotune.plan.pairs import PairSpans
from dynotune.plan.truncation import Spans

MOST = 8
"""Examples."""

LONGEST = 8_192
"""Tokens: the plain path forms the logits of all tokens of an example, in float32. Longer ones are left out where there
are others."""

LOOKED_AT = 4_096
"""Rows whose labels are looked at for several answers, evenly spread over the data."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of rows that may be chosen, [rows] each."""

    rows: NDArray[np.int64]
    lengths: NDArray[np.int64]
    labels: NDArray[np.int64]
    """Label tokens; of a pair those of the shorter answer."""

    answers: NDArray[np.int64]
    """Spans of label tokens, such as the turns of an assistant; 0 where nobody looked."""

    prompts: NDArray[np.int64]
    """Numbers that are equal where prompts are; all differ where that is not known."""


def choose(facts: Facts, most: int = MOST) -> NDArray[np.int64]:
    """The longest row, the shortest, the one with the fewest label tokens, the one with the most answers, two with one
    prompt where there are such, and others evenly over the lengths: `most` of them, or all. In the order of the data."""
    keep = facts.lengths <= LONGEST
    place = np.flatnonzero(keep) if keep.any() else np.array([facts.lengths.argmin()])
    lengths = facts.lengths[place]
    order = np.argsort(lengths, kind="stable")
    first = [order[-1], order[0], facts.labels[place].argmin(), facts.answers[place].argmax()]
    first += list(_alike(facts.prompts[place]))
    even = np.linspace(0, len(order) - 1, min(len(order), most)).round().astype(np.int64)
    between = order[np.concatenate([even, np.arange(len(order))])]
    chosen = list(dict.fromkeys(int(at) for at in [*first, *between]))[:most]
    found: NDArray[np.int64] = facts.rows[np.sort(place[chosen])]
    return found


def _alike(prompts: NDArray[np.int64]) -> NDArray[np.intp]:
    """Places of the first two with one prompt; none where all differ."""
    _, first, which = np.unique(prompts, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[which] != np.arange(len(prompts)))
    return np.array([first[which[again[0]]], again[0]]) if len(again) else np.zeros(0, np.intp)


def facts_of(rows: NDArray[np.int64], spans: Spans | PairSpans, examples: Examples | None) -> Facts:
    """Of the rows that a plan trains. examples: the documents, where rows are documents."""
    rows = rows[spans.label_tokens[rows] > 0]
    none, apart = np.zeros(len(rows), np.int64), np.arange(len(rows))
    if isinstance(spans, PairSpans):
        prompts = apart if spans.alike is None else spans.alike.prompts[rows]
        return Facts(rows, spans.lengths_of(rows), spans.side_labels[rows].min(1), none, prompts)
    assert examples is not None
    answers = none.copy()
    for at in np.unique(np.linspace(0, len(rows) - 1, min(len(rows), LOOKED_AT)).astype(np.int64)).tolist():
        labelled = examples.labels[spans.start[rows[at]] : spans.end[rows[at]]] != IGNORE
        answers[at] = np.count_nonzero(labelled[1:] & ~labelled[:-1]) + int(labelled[0])
    return Facts(rows, spans.lengths_of(rows), spans.label_tokens[rows], answers, apart)
