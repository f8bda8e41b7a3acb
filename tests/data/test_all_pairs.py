"""What is counted for all pairs at once is what looking at each pair alone gives."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.data import pairs as module
from dynotune.data.examples import IGNORE, Example, Examples
from dynotune.data.pairs import Pairs
from dynotune.data.rows import Place
from dynotune.data.templates.masks import common_prefix_length
from dynotune.plan.truncation import truncate

tokens = st.lists(st.integers(0, 2), min_size=1, max_size=6)


@st.composite
def data_sets(draw: Any) -> Examples:
    documents = []
    for line in range(draw(st.integers(1, 7))):
        prompt = draw(st.lists(st.integers(0, 2), max_size=5))
        for answer in (draw(tokens), draw(tokens)):
            ids = np.array(prompt + answer, np.int32)
            labels = np.array([IGNORE] * len(prompt) + answer, np.int32)
            documents.append(Example(ids, labels, Place("f", line + 1)))
    return Examples.from_list(documents, per_example=2)


@settings(deadline=None)
@given(
    data_sets(),
    st.one_of(st.none(), st.integers(2, 8)),
    st.sampled_from(["keep_start", "keep_end"]),
    st.integers(1, 20),
)
def test_all_pairs_at_once_are_each_pair_alone(
    examples: Examples, max_length: int | None, mode: str, chunk_tokens: int
) -> None:
    spans = truncate(examples, max_length, mode)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_TOKENS", chunk_tokens)
        pairs = Pairs(examples, spans.start, spans.end)
        digests = pairs.prompt_digests()
        prompts: dict[int, tuple[int, ...]] = {}
        for pair in range(len(pairs)):
            sides = pairs[pair]
            assert [len(side.ids_T) for side in sides] == pairs.lengths[pair].tolist()
            assert pairs.shared[pair] == common_prefix_length(sides[0].ids_T, sides[1].ids_T)
            counts = [int((side.labels_T[1:] != IGNORE).sum()) for side in sides]
            assert pairs.label_counts[pair].tolist() == counts
            labelled = np.flatnonzero(sides[0].labels_T != IGNORE)
            assert pairs.prompt_lengths[pair] == (labelled[0] if len(labelled) else len(sides[0].ids_T))
            prompt = tuple(sides[0].ids_T[: pairs.prompt_lengths[pair]].tolist())
            assert prompts.setdefault(int(digests[pair]), prompt) == prompt
        assert len(prompts) == len(set(prompts.values()))
        backwards = np.arange(len(pairs))[::-1]
        taken = pairs.taken(backwards)
        assert np.array_equal(taken.label_counts, pairs.label_counts[backwards])
        for pair, other in enumerate(backwards.tolist()):
            for mine, theirs in zip(taken[pair], pairs[other], strict=True):
                assert (mine.ids_T.tolist(), mine.labels_T.tolist()) == (
                    theirs.ids_T.tolist(),
                    theirs.labels_T.tolist(),
                )
                assert mine.place == theirs.place


def test_an_answer_that_begins_like_the_other_is_shared_and_no_prompt() -> None:
    """Negative control of `shared`: it is not the prompt's length, and ends with the shorter side."""
    sides = [[1, 2, 3, 4], [1, 2, 3]]
    documents = [
        Example(np.array(ids, np.int32), np.array([IGNORE, *ids[1:]], np.int32), Place("f", 1)) for ids in sides
    ]
    pairs = Pairs(Examples.from_list(documents, per_example=2))
    assert (pairs.shared.tolist(), pairs.prompt_lengths.tolist()) == ([3], [1])
    assert pairs.label_counts.tolist() == [[3, 2]]
    with pytest.raises(IndexError):
        pairs[1]
    with pytest.raises(AssertionError):
        Pairs(Examples.from_list(documents))
