"""Promise: laid out as families, every document keeps its tokens, positions and labels, and sees itself and nothing else."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.data.examples import IGNORE
from dynotune.model.families import (
    FamiliesSideBySide,
    Family,
    keys_of,
    lay_families,
    pack_families,
    squares_of,
    static_keys,
    tokens_of,
    trunk_of,
)
from dynotune.model.packed import Document, lay_side_by_side

CPU = torch.device("cpu")


def ids(*tokens: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(tokens, np.int32)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Of three kinds of tokens, so that beginnings are alike, with any labels."""
    n = draw(st.integers(1, 8))
    tokens = np.array(draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)), np.int32)
    masked = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    return tokens, np.where(masked, IGNORE, tokens).astype(np.int32)


families = st.lists(st.lists(documents(), min_size=1, max_size=4), max_size=4)


def laid_out(given: list[Family], padding: int) -> FamiliesSideBySide:
    shapes = [(trunk_of([tokens for tokens, _ in family]), [len(tokens) for tokens, _ in family]) for family in given]
    return lay_families(given, sum(trunk + sum(n - trunk for n in lengths) for trunk, lengths in shapes) + padding)


def seen_by_each_token(laid: FamiliesSideBySide) -> list[list[int]]:
    """Rows that each row's query sees, in the order of its keys: causal, the last query at the last key."""
    seen = []
    for s, (queries, keys) in enumerate(zip(laid.lengths, laid.key_lengths, strict=True)):
        start = int(laid.key_boundaries_S1[s])
        rows = laid.key_rows_K[start : start + keys].tolist()
        seen += [rows[: keys - queries + i + 1] for i in range(queries)]
    return seen


@settings(deadline=None, max_examples=200)
@given(given=families, padding=st.integers(0, 9))
def test_every_document_is_whole_and_sees_itself_alone(given: list[Family], padding: int) -> None:
    laid = laid_out(given, padding)
    seen, at, sequence = seen_by_each_token(laid), 0, 0
    labels = list(zip(laid.sequences_N.tolist(), laid.predictors_N.tolist(), laid.targets_N.tolist(), strict=True))
    for family in given:
        trunk = trunk_of([tokens for tokens, _ in family])
        for tokens, document_labels in family:
            # Its last token sees the whole document, and each token before it the document up to itself.
            own = len(tokens) - (trunk if tokens is not family[0][0] else 0)
            at += own
            rows = seen[at - 1]
            assert laid.ids_T[rows].tolist() == tokens.tolist()
            assert laid.positions_T[rows].tolist() == list(range(len(tokens)))
            for i in range(len(tokens)):
                assert seen[rows[i]] == rows[: i + 1]
            wanted = [(sequence, rows[i - 1], int(x)) for i, x in enumerate(document_labels) if i and x != IGNORE]
            assert [label for label in labels if label[0] == sequence] == wanted
            sequence += 1
    assert laid.sequences == sequence == len(laid.lengths) - bool(padding)
    assert sorted(laid.sequences_N.tolist()) == laid.sequences_N.tolist()
    # Nothing stands twice, nothing is padding but padding.
    assert len(laid.ids_T) == at + padding
    assert all(row >= at for rows in seen[at:] for row in rows)
    assert laid.positions_T[at:].tolist() == [0] * padding


@settings(deadline=None)
@given(given=st.lists(documents(), max_size=5), padding=st.integers(0, 9))
def test_documents_that_share_nothing_are_laid_out_as_ever(given: list[Document], padding: int) -> None:
    """A document is a family of one."""
    tokens = sum(len(one) for one, _ in given) + padding
    ours, plain = lay_families([[one] for one in given], tokens), lay_side_by_side(given, tokens)
    for name in ("ids_T", "positions_T", "predictors_N", "targets_N", "boundaries_S1"):
        a, b = getattr(ours, name), getattr(plain, name)
        assert (a.dtype, a.tolist()) == (b.dtype, b.tolist()), name
    assert (ours.lengths, ours.sequences) == (plain.lengths, plain.documents)
    assert ours.key_rows_K.tolist() == list(range(tokens))
    assert ours.key_boundaries_S1.tolist() == ours.boundaries_S1.tolist()


@pytest.mark.parametrize(
    ("given", "trunk"),
    [
        ([ids(1, 2, 3, 4), ids(1, 2, 5)], 2),
        ([ids(1, 2, 3), ids(1, 2, 3)], 2),  # alike: each keeps a token
        ([ids(1, 2), ids(1, 2, 3)], 1),  # one begins with the other
        ([ids(1), ids(1, 2)], 0),
        ([ids(1, 2), ids(2, 2)], 0),
        ([ids(1, 2, 3), ids(1, 2, 4), ids(1, 5, 3)], 1),
        ([ids(1, 2, 3)], 0),
    ],
)
def test_the_trunk_is_the_longest_common_beginning_that_leaves_each_a_token(given: Any, trunk: int) -> None:
    assert trunk_of(given) == trunk


def test_a_trunks_last_token_predicts_for_every_branch() -> None:
    prompt, chosen, rejected = (7, 8), (9, 4), (9, 5, 6)
    pair = [(ids(*prompt, *answer), ids(IGNORE, IGNORE, *answer)) for answer in (chosen, rejected)]
    laid = lay_families([pair], 8)
    # The answers begin alike: `9` stands in the trunk once and is a label of both.
    assert laid.ids_T.tolist() == [7, 8, 9, 4, 5, 6, 0, 0]
    assert laid.positions_T.tolist() == [0, 1, 2, 3, 3, 4, 0, 0]
    assert laid.predictors_N.tolist() == [1, 2, 1, 2, 4]
    assert laid.targets_N.tolist() == [9, 4, 9, 5, 6]
    assert laid.sequences_N.tolist() == [0, 0, 1, 1, 1]
    assert laid.lengths == (4, 2, 2)
    assert laid.key_lengths[:2] == (4, 5)
    assert laid.key_rows_K[:9].tolist() == [0, 1, 2, 3, 0, 1, 2, 4, 5]


@settings(deadline=None)
@given(given=families, padding=st.integers(0, 3), spare=st.integers(0, 40))
def test_keys_in_a_static_count_stand_in_the_paddings_segment(given: list[Family], padding: int, spare: int) -> None:
    exact = laid_out(given, 0)
    tokens, needed = len(exact.ids_T) + padding, len(exact.key_rows_K) + padding
    laid = lay_families(given, tokens, needed + spare * bool(padding))
    assert len(laid.key_rows_K) == needed + spare * bool(padding)
    assert sum(laid.key_lengths) == len(laid.key_rows_K)
    # No key without a query that sees it, and never fewer keys than queries.
    assert all(1 <= queries <= keys for queries, keys in zip(laid.lengths, laid.key_lengths, strict=True))
    assert laid.key_lengths[: laid.sequences] == exact.key_lengths
    if not padding:
        with pytest.raises(AssertionError):
            lay_families(given, tokens, needed + 1)
    with pytest.raises(AssertionError):
        lay_families(given, tokens, needed - 1)


def test_by_default_keys_come_in_few_counts() -> None:
    counts = {static_keys(4096 + repeated, 4096) for repeated in range(4097)}
    assert len(counts) == 9
    assert all(0 <= static_keys(4096 + n, 4096) - 4096 - n < 512 for n in range(4097))
    pair = [(ids(*range(1, 20), 50), ids(*range(1, 20), 50)), (ids(*range(1, 20), 60), ids(*range(1, 20), 60))]
    assert len(lay_families([pair], 64).key_rows_K) == 128


@settings(deadline=None)
@given(given=families, padding=st.integers(0, 3))
def test_one_copy_brings_all_of_it(given: list[Family], padding: int) -> None:
    laid = laid_out(given, padding)
    buffer = laid.buffer(pin=False)
    batch = laid.unpack(buffer)
    for name in ("ids_T", "positions_T", "boundaries_S1", "predictors_N", "targets_N", "key_rows_K",
                 "key_boundaries_S1", "sequences_N"):  # fmt: skip
        found = getattr(batch, name)
        assert found.tolist() == getattr(laid, name).tolist()
        assert found.dtype == (torch.int32 if "boundaries" in name else torch.int64)
        assert found.numel() == 0 or found.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr()
    assert (batch.lengths, batch.key_lengths, batch.sequences) == (laid.lengths, laid.key_lengths, laid.sequences)


def test_an_empty_micro_batch_is_all_padding() -> None:
    batch = pack_families([], 64, CPU)
    assert (batch.lengths, batch.key_lengths, batch.sequences) == ((64,), (64,), 0)


@settings(deadline=None)
@given(given=st.lists(st.lists(documents(), min_size=2, max_size=3), min_size=1, max_size=4))
def test_the_facts_of_cost_are_those_of_the_layout(given: list[Family]) -> None:
    laid, most = laid_out(given, 0), max(map(len, given))
    trunk_F = np.array([trunk_of([tokens for tokens, _ in family]) for family in given])
    lengths_FB = np.array([[len(tokens) for tokens, _ in family] + [0] * (most - len(family)) for family in given])
    assert tokens_of(trunk_F, lengths_FB).sum() == len(laid.ids_T)
    assert keys_of(lengths_FB).sum() == len(laid.key_rows_K)
    # n tokens form n (n + 1) / 2 products, for which n^2 stands: twice the products less one for each token.
    products = sum(map(len, seen_by_each_token(laid)))
    assert squares_of(trunk_F, lengths_FB).sum() == 2 * products - len(laid.ids_T)
