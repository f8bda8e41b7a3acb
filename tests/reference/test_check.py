"""Promise: values of another backend or version are used where they agree with this one's, and made anew where not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dynotune.reference.check import SAMPLE, agreement, changes, relative, spread
from dynotune.reference.pairs import pair_digests
from dynotune.reference.segments import paths, read, read_all
from tests.reference.pairs import MADE_BY, Reference, many, taken
from tests.reference.test_compute import cache, right

LATER = {"backend": "fa3", "torch": "2.14.0"}


def test_values_that_agree_are_used_and_not_checked_again(tmp_path: Path) -> None:
    pairs = many(100)
    cache(tmp_path).obtain(pairs, Reference(pairs))
    score = Reference(pairs, off=1e-8)
    found = cache(tmp_path, made_by=LATER).obtain(pairs, score)
    assert len(score.asked) == SAMPLE
    assert found.computed == 0
    assert (found.values_PC == right(pairs)).all()
    assert found.sentences[0].startswith("reference: hit")
    assert found.sentences[1] == (
        "reference: 100 pairs were made with backend reference instead of fa3, torch 2.13.0 instead of 2.14.0: 32 pairs"
        " computed again differ by up to 1e-08 of their log-probability (within 1e-06), so they are used"
    )
    again = Reference(pairs)
    assert cache(tmp_path, made_by=LATER).obtain(pairs, again).sentences[1:] == []
    assert again.asked == []


def test_values_that_were_taken_over_stay_those_of_what_made_them(tmp_path: Path) -> None:
    pairs = many(100)
    cache(tmp_path).obtain(pairs, Reference(pairs))
    later = cache(tmp_path, made_by=LATER)
    later.obtain(pairs, Reference(pairs, off=8e-7))
    assert {segment.made_by["torch"] for segment in read_all(later.folder)[0]} == {MADE_BY["torch"]}
    for path in paths(later.folder):  # what the first version wrote is lost, and its values are not
        if not read(path).checked_by:
            path.unlink()
    score = Reference(pairs, off=16e-7)
    found = cache(tmp_path, made_by={"torch": "3.0"}).obtain(pairs, score)
    assert found.computed == 100
    assert "torch 2.13.0 instead of 3.0" in found.sentences[0]
    assert cache(tmp_path).obtain(pairs, Reference(pairs)).computed == 0


@pytest.mark.parametrize("off", [1e-4, np.nan])
def test_values_that_disagree_are_made_anew_and_the_figure_is_said(tmp_path: Path, off: float) -> None:
    pairs = many(100)
    cache(tmp_path).obtain(pairs, Reference(pairs, off=1e-4))
    score = Reference(pairs)
    found = cache(tmp_path, made_by=LATER).obtain(pairs, score)
    assert found.computed == 100
    assert (found.values_PC == right(pairs)).all()
    assert "differ by up to 0.0001 of their log-probability (beyond 1e-06); 100 of 100 pairs" in found.sentences[0]
    assert found.sentences[0].startswith("reference: made anew: 100 pairs were made with backend reference instead of")
    assert len(found.sentences) == 1
    assert cache(tmp_path, made_by=LATER).obtain(pairs, Reference(pairs)).computed == 0
    old = cache(tmp_path).obtain(pairs, Reference(pairs, off=1e-4))  # both versions keep their own
    assert old.computed == 0
    assert (old.values_PC == right(pairs) * (1 + 1e-4)).all()


def test_some_that_disagree_are_the_reason_for_making_some_anew(tmp_path: Path) -> None:
    pairs = many(100)
    some = taken(pairs, range(40))
    cache(tmp_path).obtain(some, Reference(some, off=1e-4))
    rest = taken(pairs, range(40, 100))
    cache(tmp_path, made_by=LATER).obtain(rest, Reference(rest))
    [sentence] = cache(tmp_path, made_by=LATER).obtain(pairs, Reference(pairs)).sentences
    assert sentence.startswith("reference: made anew for 40 of 100 distinct pairs: 40 pairs were made with backend")
    assert "not among those kept" not in sentence


def test_what_this_version_made_counts_before_what_another_made(tmp_path: Path) -> None:
    pairs = many(20)
    cache(tmp_path).obtain(pairs, Reference(pairs, off=5e-7))
    cache(tmp_path, made_by=LATER, noise=0.0).obtain(pairs, Reference(pairs))
    score = Reference(pairs)
    assert (cache(tmp_path, made_by=LATER).obtain(pairs, score).values_PC == right(pairs)).all()
    assert score.asked == []


def test_a_version_from_which_nothing_is_wanted_is_not_checked(tmp_path: Path) -> None:
    cache(tmp_path).obtain(many(5), Reference(many(5)))
    other = many(5, seed=3)
    score = Reference(other)
    cache(tmp_path, made_by=LATER).obtain(other, score)
    assert len(score.asked) == 5


def test_the_sample_is_spread_by_digest_and_the_same_each_time() -> None:
    digests = pair_digests(many(300))
    all_of_them = np.arange(300)
    chosen = spread(digests, all_of_them)
    assert len(set(chosen.tolist())) == SAMPLE
    order = np.random.default_rng(0).permutation(300)
    assert {digests[i].tobytes() for i in chosen} == {
        digests[order][i].tobytes() for i in spread(digests[order], all_of_them)
    }
    by_digest = sorted(range(300), key=lambda i: digests[i].tobytes())
    places = sorted(by_digest.index(i) for i in chosen)
    assert places[0] == 0
    assert places[-1] == 299
    assert max(np.diff(places)) <= 10
    assert spread(digests, np.array([7, 3])).tolist() == [3, 7]
    assert spread(digests, np.zeros(0, np.int64)).tolist() == []


def test_differences_are_relative_to_the_log_probability_and_to_one_nat_at_least() -> None:
    kept = np.array([[-100.0, -0.001]])
    assert relative(np.array([[-101.0, -0.002]]), kept).round(9).tolist() == [[0.01, 0.001]]
    assert agreement(kept, kept, 0.0).holds
    assert not agreement(kept, kept * np.array([[1.0, np.nan]]), 1e9).holds
    assert agreement(kept[:0], kept[:0], 0.0).holds


def test_what_differs_is_named() -> None:
    later: dict[str, Any] = {**MADE_BY, "torch": "2.14.0", "device": "H200"}
    assert changes(MADE_BY, later) == "device unknown instead of H200, torch 2.13.0 instead of 2.14.0"
