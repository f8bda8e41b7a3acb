"""Promise: whatever the data, a probe has the longest row, the shortest, the one with the fewest labels and the one with the
most answers, each once, and no more rows than it may.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dynotune.bench.parity.rows import LONGEST, MOST, Facts, choose


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    count = draw(st.integers(1, 40))

    def column(least: int, most: int) -> np.ndarray:
        return np.array(draw(st.lists(st.integers(least, most), min_size=count, max_size=count)), np.int64)

    rows = np.sort(np.array(draw(st.permutations(range(100)))[:count], np.int64))
    return Facts(rows, column(2, LONGEST + 50), column(1, 9), column(0, 4), column(0, 60))


@given(facts=facts())
def test_the_rows_on_which_mistakes_show_are_among_them(facts: Facts) -> None:
    chosen = choose(facts)
    within = facts.lengths <= LONGEST
    assert len(chosen) == len(set(chosen.tolist())) == max(1, min(MOST, int(within.sum())))
    assert (np.diff(chosen) > 0).all()
    if not within.any():
        assert facts.lengths[facts.rows == chosen[0]] == facts.lengths.min()
        return
    mine = np.isin(facts.rows, chosen)
    assert not (mine & ~within).any()
    assert facts.lengths[mine].max() == facts.lengths[within].max()
    assert facts.lengths[mine].min() == facts.lengths[within].min()
    assert facts.labels[mine].min() == facts.labels[within].min()
    assert facts.answers[mine].max() == facts.answers[within].max()


def test_two_pairs_with_one_prompt_are_among_them() -> None:
    same = np.arange(30)
    same[21] = same[8]
    ones = np.ones(30, np.int64)
    chosen = choose(Facts(np.arange(30), np.arange(30) + 5, ones, ones, same))
    assert {8, 21} <= set(chosen.tolist())
