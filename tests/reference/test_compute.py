"""Promise: every pair has the value of its own tokens, weights and settings, made once; what is not sure is made anew."""

import base64
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.data.examples import Examples
from dynotune.data.pairs import Pairs
from dynotune.data.places import Places
from dynotune.errors import TrainingError
from dynotune.parallel.ranks import Ranks
from dynotune.reference import Key, ReferenceCache
from dynotune.reference.compute import _decoded, _encoded
from dynotune.reference.segments import paths
from tests.reference.pairs import KEY, MADE_BY, Reference, damage, many, pairs_of, taken


def cache(root: Path, key: Key = KEY, **more: Any) -> ReferenceCache:
    return ReferenceCache(key, **{"made_by": MADE_BY, "noise": 1e-6, "root": root, "batch_tokens": 60, **more})


def right(pairs: Pairs, columns: int = 2) -> np.ndarray:
    return Reference(pairs, columns).right(range(len(pairs)))


def test_first_made_then_hit_whatever_the_order_of_the_pairs(tmp_path: Path) -> None:
    pairs = many(50)
    first, score = cache(tmp_path), Reference(pairs)
    made = first.obtain(pairs, score)
    assert (made.values_PC == right(pairs)).all()
    assert sorted(score.asked) == list(range(50))
    assert made.computed == 50
    assert made.sentences[0].startswith("reference: made anew: first time; 50 of 50 pairs computed in ")
    assert f"kept in {first.folder}" in made.sentences[0]
    order = np.random.default_rng(0).permutation(50)
    shuffled = taken(pairs, order)
    again = Reference(shuffled)
    hit = cache(tmp_path).obtain(shuffled, again)
    assert again.asked == []
    assert (hit.values_PC == right(shuffled)).all()
    assert hit.computed == 0
    assert hit.sentences == [f"reference: hit: 50 pairs in {hit.sentences[0].split()[5]} s from {first.folder}"]


def test_tails_are_kept_beside_the_sums_and_serve_every_factor(tmp_path: Path) -> None:
    """The second poisoning of TRL's cache: its key lacks `ld_alpha`, whose factor is inside the values that it keeps."""
    pairs = many(10)
    plain = cache(tmp_path).obtain(pairs, Reference(pairs))
    key = replace(KEY, tails=True)
    score = Reference(pairs, columns=4)
    tailed = cache(tmp_path, key).obtain(pairs, score)
    assert len(score.asked) == 10
    assert "tails are summed (`ld_alpha`) changed since" in tailed.sentences[0]
    assert tailed.values_PC.shape == (10, 4)
    assert (tailed.values_PC[:, :2] == plain.values_PC).all()
    assert cache(tmp_path, key).obtain(pairs, Reference(pairs, columns=4)).computed == 0


@pytest.mark.parametrize("mode", ["keep_end", "keep_start"])
def test_another_truncation_is_made_anew_for_the_pairs_that_it_cuts(tmp_path: Path, mode: str) -> None:
    """The first poisoning of TRL's cache: with `keep_end` its key lacks `max_length`."""
    pairs = many(40)

    def cut(most: int) -> Pairs:
        if mode == "keep_end":
            return Pairs(pairs.examples, np.maximum(pairs.start, pairs.end - most), pairs.end)
        return Pairs(pairs.examples, pairs.start, np.minimum(pairs.end, pairs.start + most))

    cache(tmp_path).obtain(cut(30), Reference(cut(30)))
    shorter, score = cut(12), Reference(cut(12))
    found = cache(tmp_path).obtain(shorter, score)
    assert (found.values_PC == right(shorter)).all()
    assert (found.values_PC != right(cut(30))).any()  # negative control: the old values would be wrong
    same = (cut(30).lengths <= 12).all(1)
    assert sorted(score.asked) == np.flatnonzero(~same).tolist()
    assert f"made anew for {40 - int(same.sum())} of 40 distinct pairs" in found.sentences[0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"weights": "w1"}, "the weights changed since 20"),
        ({"config": "c1", "precision": "bf16"}, "the model's configuration and the precision changed since"),
        ({"quantisation": "nf4"}, "the quantisation changed"),
        ({"semantics": 99}, "this version's way of computing them changed"),
    ],
)
def test_stale_values_are_not_used_and_why_is_said(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    pairs = many(10)
    cache(tmp_path, replace(KEY, weights="far", precision="far", config="far", quantisation="far")).obtain(
        pairs, Reference(pairs)
    )
    cache(tmp_path).obtain(pairs, Reference(pairs))
    score = Reference(pairs, off=0.1)
    found = cache(tmp_path, replace(KEY, **changed)).obtain(pairs, score)
    assert len(score.asked) == 10
    assert (found.values_PC == right(pairs) * 1.1).all()
    assert said in found.sentences[0]
    assert cache(tmp_path).obtain(pairs, Reference(pairs)).computed == 0  # the old ones are still there


def test_other_pairs_say_that_they_are_new(tmp_path: Path) -> None:
    cache(tmp_path).obtain(many(5), Reference(many(5)))
    other = many(5, seed=9)
    assert "none of these pairs was met before" in cache(tmp_path).obtain(other, Reference(other)).sentences[0]


def test_a_damaged_part_is_made_anew_and_no_other(tmp_path: Path) -> None:
    pairs = many(40)
    cache(tmp_path, seconds=0).obtain(pairs, Reference(pairs))
    segments = paths(cache(tmp_path).folder)
    assert len(segments) > 5
    damage(segments[2])
    score = Reference(pairs)
    found = cache(tmp_path).obtain(pairs, score)
    assert (found.values_PC == right(pairs)).all()
    assert 0 < len(score.asked) < 20
    assert found.sentences[1].startswith(
        f"reference: damaged, and its pairs made anew: {segments[2].name} differs from"
    )
    assert cache(tmp_path).obtain(pairs, Reference(pairs)).sentences[0].startswith("reference: hit")


def test_an_interrupted_computation_goes_on_where_it_stopped(tmp_path: Path) -> None:
    pairs = many(40)

    class Interrupted(Reference):
        def __call__(self, numbers: Any) -> Any:
            if len(self.asked) > 20:
                raise KeyboardInterrupt
            return super().__call__(numbers)

    score = Interrupted(pairs)
    with pytest.raises(KeyboardInterrupt):
        cache(tmp_path).obtain(pairs, score)
    rest = Reference(pairs)
    found = cache(tmp_path).obtain(pairs, rest)
    assert (found.values_PC == right(pairs)).all()
    assert sorted(score.asked + rest.asked) == list(range(40))
    assert f"made anew for {len(rest.asked)} of 40" in found.sentences[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused_with_its_place(tmp_path: Path, bad: float) -> None:
    pairs = many(40)

    def score(numbers: Any) -> Any:
        values = Reference(pairs).right(numbers)
        values[numbers == 21, 1] = bad
        return values

    with pytest.raises(TrainingError, match=r"of the pair at .*pairs.jsonl.*22.*`bf16: false`"):
        cache(tmp_path).obtain(pairs, score)
    rest = Reference(pairs)
    assert (cache(tmp_path).obtain(pairs, rest).values_PC == right(pairs)).all()
    assert 21 in rest.asked
    assert len(rest.asked) < 40  # what was finished before was kept


def test_each_distinct_pair_is_computed_once(tmp_path: Path) -> None:
    a, b = (([1, 2, 3], 1), ([1, 4], 1)), (([7, 8], 1), ([7, 9], 1))
    pairs = pairs_of(a, b, a, a, b)
    score = Reference(pairs)
    found = cache(tmp_path).obtain(pairs, score)
    assert score.asked == [0, 1]
    assert (found.values_PC == right(pairs)).all()
    assert "2 of 5 pairs computed (3 repeat another)" in found.sentences[0]


@given(st.integers(1, 30), st.integers(1, 100), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_any_batches_in_the_order_that_is_asked_for(count: int, most: int, seed: int) -> None:
    pairs, score = many(count, seed), Reference(many(count, seed))
    order = np.random.default_rng(seed).permutation(count)
    calls: list[list[int]] = []

    def noted(numbers: Any) -> Any:
        calls.append(numbers.tolist())
        return score(numbers)

    with tempfile.TemporaryDirectory() as root:
        found = cache(Path(root), batch_tokens=most).obtain(pairs, noted, order)
    assert (found.values_PC == right(pairs)).all()
    assert score.asked == order.tolist()
    tokens = pairs.lengths.sum(1)
    assert all(len(call) == 1 or tokens[call].sum() <= most for call in calls)
    for one, after in pairwise(calls):
        assert tokens[[*one, after[0]]].sum() > most  # no batch is smaller than it must be


def test_a_folder_that_cannot_be_written_costs_the_cache_and_not_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said: list[str] = []
    pairs = many(10)
    found = cache(tmp_path / "file" / "reference", say=said.append).obtain(pairs, Reference(pairs))
    assert (found.values_PC == right(pairs)).all()
    assert "not kept: " in found.sentences[0]
    assert "cannot be written (Not a directory)" in found.sentences[0]
    assert len([text for text in said if "not kept" in text]) == 1


class Together(Ranks):
    """Ranks that are threads."""

    def __init__(self, rank: int, world: int, board: list[Any], barrier: Barrier) -> None:
        super().__init__(rank, world)
        self.board, self.barrier = board, barrier

    def gather(self, value: Any) -> list[Any]:
        self.board[self.rank] = json.dumps(value)
        self.barrier.wait(300)
        told = [json.loads(text) for text in self.board]
        self.barrier.wait(300)
        return told

    def agree(self, *flags: bool) -> tuple[bool, ...]:
        return tuple(any(column) for column in zip(*self.gather(flags), strict=True))


def on_ranks(world: int, each: Callable[[Ranks], None]) -> None:
    board, barrier, errors = [None] * world, Barrier(world), []

    def run(rank: int) -> None:
        try:
            each(Together(rank, world, board, barrier))
        except BaseException as error:  # noqa: BLE001  (it is raised below, in the test's own thread)
            errors.append(error)
            barrier.abort()

    threads = [Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_the_work_and_all_know_all(tmp_path: Path, world: int, shared: bool) -> None:
    """With one folder, and with one a machine: then what other machines lack or have is exchanged."""
    pairs = many(40)
    scores = [Reference(pairs) for _ in range(world)]
    results: dict[int, Any] = {}

    def each(ranks: Ranks) -> None:
        root = tmp_path / ("one" if shared else f"machine {ranks.rank}")
        results[ranks.rank] = cache(root, ranks=ranks).obtain(pairs, scores[ranks.rank])

    on_ranks(world, each)
    for found in results.values():
        assert (found.values_PC == right(pairs)).all()
        assert found.computed == 40
    assert sorted(p for score in scores for p in score.asked) == list(range(40))
    assert all(len(score.asked) > 40 // world // 2 for score in scores)
    scores = [Reference(pairs) for _ in range(world)]
    on_ranks(world, each)
    assert all(found.computed == 0 for found in results.values())
    assert not any(score.asked for score in scores)
    alone = cache(tmp_path / ("one" if shared else "machine 0"))
    assert alone.obtain(pairs, Reference(pairs)).computed == 0
    if not shared:  # the first machine has lost its folder: the others' parts are used
        for path in paths(alone.folder):
            path.unlink()
        on_ranks(world, each)
        assert (results[0].values_PC == right(pairs)).all()
        assert 0 < results[0].computed < 40


def test_values_travel_between_ranks_exactly() -> None:
    values = np.array([[1 / 3, np.nan], [-1e-300, 5.0]])
    assert isinstance(_encoded(values), str)
    assert base64.b64decode(_encoded(values)) == values.tobytes()
    np.testing.assert_array_equal(_decoded(_encoded(values), (2, 2)), values)


@pytest.mark.long
def test_the_second_time_100_000_pairs_take_less_than_two_seconds(tmp_path: Path) -> None:
    rows, length = 200_000, 60
    ids = np.arange(rows * length, dtype=np.int32)
    places = Places(["x"], np.zeros(rows, np.int32), np.arange(rows, dtype=np.int64))
    offsets = np.arange(rows + 1, dtype=np.int64) * length
    pairs = Pairs(Examples(ids, ids.copy(), offsets, places, per_example=2))

    def score(numbers: Any) -> Any:
        return np.stack([-1.0 - numbers, -2.0 - numbers], 1)

    cache(tmp_path, batch_tokens=1 << 20).obtain(pairs, score)
    seconds = []
    for _ in range(2):  # processor time: other things run here, too
        began = time.process_time()
        found = cache(tmp_path).obtain(pairs, lambda numbers: 1 / 0)
        seconds.append(time.process_time() - began)
    assert (found.values_PC[:, 0] == -1.0 - np.arange(100_000)).all()
    assert min(seconds) < 2, seconds
