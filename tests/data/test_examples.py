"""Promises of the flat arrays: a view holds what it was asked for, and chunks change nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.data import examples as module
from dynotune.data.examples import IGNORE, Example, Examples
from dynotune.data.places import Places
from dynotune.data.rows import Place

rows = st.lists(st.lists(st.booleans(), max_size=20), min_size=1, max_size=12)


def examples_of(labelled: list[list[bool]]) -> Examples:
    made = []
    for line, flags in enumerate(labelled):
        ids = np.arange(len(flags), dtype=np.int32) + 100 * line
        made.append(
            Example(ids, np.where(flags, ids, IGNORE).astype(np.int32), Place(f"file {line % 3}", line or None))
        )
    return Examples.from_list(made)


@given(rows, st.data(), st.integers(1, 30))
def test_labels_are_counted_as_row_by_row_for_any_spans_and_chunks(
    labelled: list[list[bool]], data: st.DataObject, chunk: int
) -> None:
    examples = examples_of(labelled)
    examples = examples.take(np.array(data.draw(st.permutations(range(len(examples))))))
    cuts = [data.draw(st.tuples(st.integers(0, 20), st.integers(0, 20))) for _ in labelled]
    start = np.minimum(examples.starts + [a for a, _ in cuts], examples.ends)
    end = np.maximum(np.minimum(start + [b for _, b in cuts], examples.ends), start)
    expected = [np.count_nonzero(examples.labels[a:b] != IGNORE) for a, b in zip(start, end, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_TOKENS", chunk)
        assert examples.label_counts(start, end).tolist() == expected


@given(rows, st.data())
def test_a_view_holds_the_rows_that_were_asked_for(labelled: list[list[bool]], data: st.DataObject) -> None:
    examples = examples_of(labelled)
    wanted = data.draw(st.lists(st.integers(0, len(examples) - 1), min_size=1))
    view = examples.take(np.array(wanted))
    assert len(view) == len(wanted)
    for index, row in enumerate(wanted):
        assert view[index].ids_T.tolist() == examples[row].ids_T.tolist()
        assert view[index].labels_T.tolist() == examples[row].labels_T.tolist()
        assert view[index].place == view.places[index] == examples.places[row]
    assert view.ids is examples.ids
    assert view.lengths.tolist() == [len(labelled[row]) for row in wanted]


def test_the_digest_tells_tokens_labels_boundaries_and_order_apart() -> None:
    base = examples_of([[True, False], [True, True, True]])
    others = [
        examples_of([[True, True], [True, True, True]]),
        examples_of([[True, False, True], [True, True]]),
        base.take(np.array([1, 0])),
        base.take(np.array([0])),
        base.take(np.array([1])),
    ]
    assert len({base.digest(), *(other.digest() for other in others)}) == 6
    assert examples_of([[True, False], [True, True, True]]).digest() == base.digest()
    assert base.take(np.array([1, 0])).digest() == others[2].digest()


places = st.lists(st.builds(Place, st.sampled_from(["a", "b", "c"]), st.none() | st.integers(1, 2**40)), max_size=12)


@given(places)
def test_places_are_a_list_of_places(given_places: list[Place]) -> None:
    made = Places.of(given_places)
    assert list(made) == given_places
    assert list(made[2:]) == given_places[2:]
    found = {file: rows.tolist() for file, rows in made.by_file()}
    assert sorted(row for some in found.values() for row in some) == list(range(len(given_places)))
    for file, some in found.items():
        assert some == [row for row, place in enumerate(given_places) if place.file == file]
