"""Promise: `packing: true` makes TRL's rows: the same bins in the same order, with the same documents, token for token."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dynotune.data.examples import IGNORE, Example, Examples
from dynotune.data.rows import Place
from dynotune.plan import trl_packing
from dynotune.plan.trl_packing import Bins, pack_rows

STRATEGIES = ["bfd", "bfd_split", "wrapped"]


def examples_of(lengths: list[int]) -> Examples:
    """Every token has an id of its own, and two of three a label."""
    ids = np.arange(sum(lengths), dtype=np.int32)
    ends = np.cumsum(lengths)
    rows = [ids[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    return Examples.from_list(
        Example(row, np.where(row % 3 > 0, row, IGNORE).astype(np.int32), Place("rows", i + 1))
        for i, row in enumerate(rows)
    )


def ours(bins: Bins, max_length: int) -> list[tuple[list[list[int]], list[list[int]]]]:
    """Ids and labels of every document of every bin."""
    made = []
    for b in range(len(bins)):
        documents = bins.documents[bins.offsets[b] : bins.offsets[b + 1]].tolist()
        parts = [bins.examples[i] for i in documents]
        made.append(([p.ids_T[:max_length].tolist() for p in parts], [p.labels_T[:max_length].tolist() for p in parts]))
    return made


def trls(examples: Examples, order: list[int], strategy: str, max_length: int) -> list[Any]:
    import datasets
    from trl import pack_dataset

    rows = [examples[i] for i in order]
    data = datasets.Dataset.from_dict(
        {"input_ids": [r.ids_T.tolist() for r in rows], "labels": [r.labels_T.tolist() for r in rows]}
    )
    packed = pack_dataset(data, max_length, strategy)
    made = []
    for row in packed.to_list():
        cuts = np.cumsum(row.get("seq_lengths", [len(row["input_ids"])]))[:-1]
        made.append(tuple([part.tolist() for part in np.split(row[key], cuts)] for key in ("input_ids", "labels")))
    return made


@pytest.fixture(autouse=True)
def quiet() -> None:
    import datasets

    datasets.disable_progress_bars()
    datasets.disable_caching()


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=30), max_length=st.integers(2, 24), data=st.data())
def test_bins_are_trls(strategy: str, lengths: list[int], max_length: int, data: st.DataObject) -> None:
    """Rows longer than `max_length`, empty ones, ties and any order of the rows included."""
    if not sum(lengths):
        return
    examples = examples_of(lengths)
    order = data.draw(st.permutations(range(len(lengths)))) if data.draw(st.booleans()) else list(range(len(lengths)))
    bins = pack_rows(examples, np.array(order), strategy, max_length)
    assert ours(bins, max_length) == trls(examples, order, strategy, max_length)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("shuffle", [False, True])
def test_bins_are_trls_beyond_a_thousand_rows(strategy: str, shuffle: bool) -> None:
    """TRL packs a thousand rows at a time, so the remainder of each thousand is not filled up by the next."""
    rng = np.random.default_rng(0)
    examples = examples_of(rng.integers(1, 60, 2345).tolist())
    order = rng.permutation(2345) if shuffle else np.arange(2345)
    bins = pack_rows(examples, order, strategy, 48)
    assert ours(bins, 48) == trls(examples, order.tolist(), strategy, 48)


def test_another_number_of_rows_packed_together_makes_other_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the thousand matters, and the test above would see it."""
    examples = examples_of(np.random.default_rng(0).integers(1, 60, 2345).tolist())
    bins = ours(pack_rows(examples, np.arange(2345), "bfd", 48), 48)
    monkeypatch.setattr(trl_packing, "MAPPED_ROWS", 999)
    assert ours(pack_rows(examples, np.arange(2345), "bfd", 48), 48) != bins


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(2, 24), st.sampled_from(STRATEGIES[1:]))
@example([3, 4], 7, "wrapped")
def test_split_and_wrapped_lose_no_token(lengths: list[int], max_length: int, strategy: str) -> None:
    bins = pack_rows(examples_of(lengths), np.arange(len(lengths)), strategy, max_length)
    tokens = [token for ids, _ in ours(bins, max_length) for document in ids for token in document]
    assert sorted(tokens) == list(range(sum(lengths)))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(2, 24), st.sampled_from(STRATEGIES))
def test_a_document_has_the_place_of_the_row_it_begins_in(lengths: list[int], max_length: int, strategy: str) -> None:
    examples = examples_of(lengths)
    bins = pack_rows(examples, np.arange(len(lengths)), strategy, max_length)
    for document in bins.documents.tolist():
        first = int(bins.examples[document].ids_T[0])
        row = int(np.searchsorted(examples.ends, first, side="right"))
        assert bins.examples.places[document] == examples.places[row]


def test_shuffled_bins_keep_their_documents() -> None:
    bins = pack_rows(examples_of([5, 9, 3, 8, 2, 7]), np.arange(6), "bfd", 10)
    again = bins.shuffled(3)
    assert sorted(map(str, ours(again, 10))) == sorted(map(str, ours(bins, 10)))
    order = np.random.default_rng(3).permutation(len(bins)).tolist()
    assert ours(again, 10) == [ours(bins, 10)[i] for i in order]
