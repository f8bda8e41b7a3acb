"""Promise: no arm is favoured by its place, its neighbour or drift; a bench ends for precision or cost, not for a winner."""

import math
from collections import Counter
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.bench.asking.schedule import (
    Round,
    Rules,
    again,
    along,
    is_settled,
    noise_to_come,
    orders,
    rounds,
    rounds_to_come,
    stop,
    williams,
)
from dynotune.errors import ConfigError

ARMS = st.integers(2, 12).map(lambda n: [f"arm {i}" for i in range(n)])
SEED = st.integers(0, 1 << 32)


@pytest.mark.parametrize("letters", range(2, 14))
def test_each_arm_stands_in_each_place_and_follows_each_other_equally_often(letters: int) -> None:
    square = williams(letters)
    assert len(square) == letters * (1 + letters % 2)
    assert all(sorted(row) == list(range(letters)) for row in square)
    for place in range(letters):
        assert set(Counter(row[place] for row in square).values()) == {len(square) // letters}
    follows = Counter(pair for row in square for pair in pairwise(row))
    assert len(follows) == letters * (letters - 1)
    assert len(set(follows.values())) == 1


@given(ARMS, SEED, st.integers(1, 12))
def test_even_drift_over_any_two_rounds_favours_nobody(arms: list[str], seed: int, twos: int) -> None:
    run = list(islice(orders(arms, seed), 2 * twos))
    for one, other in zip(run[::2], run[1::2], strict=True):
        assert other == one[::-1]
    places = {arm: sum(i * len(arms) + order.index(arm) for i, order in enumerate(run)) for arm in arms}
    assert len(set(places.values())) == 1


@given(ARMS, SEED)
def test_the_seed_decides_and_nothing_else(arms: list[str], seed: int) -> None:
    assert list(islice(orders(arms, seed), 8)) == list(islice(orders(arms, seed), 8))


def test_either_of_two_arms_may_be_first() -> None:
    firsts = Counter(next(orders(["a", "b"], seed))[0] for seed in range(200))
    assert 70 < firsts["a"] < 130
    a_first = next(seed for seed in range(200) if next(orders(["a", "b"], seed))[0] == "a")
    assert list(islice(orders(["a", "b"], a_first), 4)) == [("a", "b"), ("b", "a")] * 2


@given(ARMS, SEED, st.integers(2, 9), st.integers(0, 7), st.integers(0, 4))
def test_pairs_of_noise_run_before_a_bench_may_stop(
    arms: list[str], seed: int, pairs: int, more: int, noise: int
) -> None:
    rules = Rules(pairs=pairs, most_pairs=pairs + more, noise_pairs=noise)
    run = list(rounds(arms, seed, rules))
    real = [r for r in run if not r.of_noise]
    of_noise = [r for r in run if r.of_noise]
    assert [r.number for r in real] == list(range(rules.most_pairs))
    assert [r.number for r in of_noise] == list(range(noise))
    assert all(r.arms == (arms[0], arms[0]) for r in of_noise)
    last = max((run.index(r) for r in of_noise), default=-1)
    assert last < run.index(real[pairs - 1])


def test_noise_stands_between_mirrored_rounds_not_within_them() -> None:
    of_noise = [i for i, r in enumerate(rounds(["a", "b"], 0, Rules())) if r.of_noise]
    assert of_noise == [2, 5]
    assert next(iter(rounds(["a", "b"], 0, Rules()))) == Round(0, next(orders(["a", "b"], 0)))


def test_it_stops_for_precision_from_six_pairs_and_at_even_numbers_only() -> None:
    rules = Rules()
    assert [done for done in range(2, 10) if is_settled(0.001, done, rules)] == [6, 8]
    assert not is_settled(0.006, 8, rules)
    assert stop([True], 6, rules) == "every interval is within ±0.5% after 6 pairs"
    assert stop([True, False], 8, rules) == ""
    assert stop([], 8, rules) == ""
    assert stop([False], 16, rules) == "16 pairs are the most"


@given(st.floats(0, 0.1), st.integers(1, 16))
def test_nothing_that_decides_knows_who_is_ahead(width: float, done: int) -> None:
    """What decides is a width, which swapping the arms does not change; an interval far from zero does not end a bench."""
    ends = bool(stop([is_settled(width, done, Rules())], done, Rules()))
    assert ends == (done == 16 or (done >= 6 and done % 2 == 0 and width <= 0.005))


def test_it_stops_before_the_budget_is_overdrawn() -> None:
    rules = Rules(budget_seconds=100)
    assert stop([False], 6, rules, spent=70, seconds_of_more=28) == ""
    assert stop([False], 6, rules, spent=80, seconds_of_more=28) == (
        "80 of 100 GPU seconds are spent after 6 pairs, and two more pairs would need about 28"
    )
    assert "another pair would need about 14" in stop([False], 7, rules, spent=90, seconds_of_more=14)
    assert stop([False], 7, rules, spent=80, seconds_of_more=14) == ""


@given(ARMS, SEED, st.integers(1, 12))
def test_rungs_of_a_ladder_stand_beside_those_that_they_are_compared_with(
    arms: list[str], seed: int, twos: int
) -> None:
    """And even drift over two rounds favours nobody there either. Control: orders that are balanced for every two arms put
    neighbours apart."""
    run = list(islice(along(arms, seed), 2 * twos))
    for one, other in zip(run[::2], run[1::2], strict=True):
        assert other == one[::-1]
    places = {name: {order.index(name) for order in run} for name in arms}
    assert all(abs(order.index(a) - order.index(b)) == 1 for order in run for a, b in pairwise(arms))
    assert all(sum(at) == len(arms) - 1 for at in places.values() if len(at) == 2)


def test_other_benches_do_put_neighbours_apart() -> None:
    arms = [f"arm {i}" for i in range(6)]
    run = list(islice(orders(arms, 0), 6))
    assert any(abs(order.index(a) - order.index(b)) > 1 for order in run for a, b in pairwise(arms))


def test_rounds_of_noise_are_foreseen() -> None:
    """Behind the second and the fourth round: a budget that ends before the fifth need not pay for the second of them."""
    rules = Rules()
    before = [i for i, r in enumerate(r for r in rounds(["a", "b"], 0, rules)) if r.of_noise]
    assert before == [2, 5]
    assert [noise_to_come(done, rules) for done in (1, 2, 3, 4, 5, 6)] == [0, 1, 0, 1, 0, 0]
    assert [rounds_to_come(done, rules) for done in (1, 2, 15, 16)] == [1, 2, 1, 0]


def test_void_blocks_run_once_more_turned_round() -> None:
    assert again(("a", "b", "c"), {"a", "c"}, 1) == ("c", "a")
    assert again(("a", "b", "c"), {"a", "c"}, 2) == ()
    assert again(("a", "b"), (), 1) == ()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"pairs": 1}, "at least 2"),
        ({"pairs": 20}, "no more than the cap"),
        ({"resolution": 0.0}, "above 0"),
        ({"resolution": math.nan}, "A resolution of nan is none"),
        ({"resolution": math.inf}, "A resolution of inf is none"),
        ({"noise_pairs": -1}, "below 0"),
        ({"budget_seconds": 0.0}, "GPU seconds above 0"),
        ({"budget_seconds": -1.0}, "A budget of -1 seconds is none"),
        ({"budget_seconds": math.nan}, "A budget of nan seconds is none"),
        ({"budget_seconds": math.inf}, "or leave `--budget` out"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(keys: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Rules(**keys)  # type: ignore[arg-type]
