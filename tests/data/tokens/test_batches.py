"""Promise: a batch holds a bounded amount of text, whatever columns that stands in, and never one side of a pair."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.data.rows import Place, Row
from dynotune.data.tokens.batches import CHUNK_CHARACTERS, CHUNK_ROWS, batches_of
from dynotune.data.tokens.pairs import sides_of

HERE = Place("rows", 1)
LONG = "a" * (CHUNK_CHARACTERS // 2)
TURN = [{"role": "assistant", "content": LONG}]


def pair(prompt: str, chosen: str = "good", rejected: str = "bad") -> tuple[Row, ...]:
    return sides_of(Row(HERE, "pair", prompt=prompt, chosen=chosen, rejected=rejected))


@pytest.mark.parametrize(
    "row",
    [
        Row(HERE, "text", text=LONG),
        Row(HERE, "messages", messages=TURN),
        Row(HERE, "prompt_completion", prompt=LONG, completion="c"),
        Row(HERE, "prompt_completion", prompt="p", completion=LONG),
        Row(HERE, "prompt_completion", prompt=TURN, completion=TURN[:0]),
        Row(HERE, "prompt_completion", prompt=TURN[:0], completion=TURN),
    ],
)
def test_text_counts_whatever_column_it_stands_in(row: Row) -> None:
    short = Row(HERE, "text", text="short")
    assert list(batches_of([row, row, short, short])) == [[0, 1], [2, 3]]


def test_long_pairs_make_batches_of_their_own_and_are_not_parted() -> None:
    sides = [side for _ in range(3) for side in pair("p", LONG, LONG)]
    assert list(batches_of(sides)) == [[0, 1], [2, 3], [4, 5]]
    sides = [*pair("p", LONG * 2, "short"), *pair("p")]  # full with its first side
    assert list(batches_of(sides)) == [[0, 1], [2, 3]]


def test_rows_are_bounded_too() -> None:
    assert list(batches_of([])) == []
    rows = [Row(HERE, "text", text="t") for _ in range(CHUNK_ROWS + 1)]
    assert [len(batch) for batch in batches_of(rows)] == [CHUNK_ROWS, 1]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([1, CHUNK_CHARACTERS // 3, CHUNK_CHARACTERS])), max_size=8))
def test_every_row_is_in_one_batch_in_order_and_pairs_are_whole(some: list[tuple[bool, int]]) -> None:
    rows: list[Row] = []
    whole: list[tuple[int, int]] = []
    for paired, length in some:
        if paired:
            whole.append((len(rows), len(rows) + 1))
            rows += pair("p" * length)
        else:
            rows.append(Row(HERE, "text", text="t" * length))
    batches = list(batches_of(rows))
    assert [index for batch in batches for index in batch] == list(range(len(rows)))
    assert all(any(first in batch and second in batch for batch in batches) for first, second in whole)
