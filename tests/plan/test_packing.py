"""Promise: no document is lost or repeated, no micro-batch overflows its static token count, and little of it is padding."""

import time
import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.config.keys.batch import BatchConfig
from dynotune.plan.epoch import Layout, even_steps, layout_of
from dynotune.plan.epoch import ladder_of as ladder_of_steps
from dynotune.plan.ladder import RUNGS, Ladder, choose_ladder, possible_rungs, round_down, round_up
from dynotune.plan.packing import arrange, lay_out, pack_step
from dynotune.plan.plan import Plan
from dynotune.plan.truncation import Spans

lengths = st.lists(st.integers(1, 700), min_size=1, max_size=40).map(lambda one: np.array(one, np.int64))
capacities = st.integers(11, 40).map(lambda n: 64 * n).map(round_up)


def ladder_of(values: np.ndarray, examples: int, capacity: int, rungs: int = RUNGS, **most: int) -> Ladder:
    return ladder_of_steps(values, even_steps(len(values), examples), capacity, rungs=rungs, **most)


def layout(values: np.ndarray, examples: int, ladder: Ladder | None) -> Layout:
    return layout_of(values, even_steps(len(values), examples), ladder)


def lognormal(documents: int, seed: int = 0) -> np.ndarray:
    """Lengths with the heavy tail of real conversations."""
    return np.random.default_rng(seed).lognormal(5.2, 1.0, documents).astype(np.int64).clip(2, 8192)


@given(lengths, capacities)
def test_every_document_stands_in_exactly_one_bin_that_holds_it(values: np.ndarray, capacity: int) -> None:
    bins = pack_step(values, capacity)
    assert sorted(i for one in bins for i in one.tolist()) == list(range(len(values)))
    assert all(values[one].sum() <= capacity for one in bins)


@given(lengths, capacities)
def test_best_fit_opens_no_bin_that_two_others_could_replace(values: np.ndarray, capacity: int) -> None:
    loads = [int(values[one].sum()) for one in pack_step(values, capacity)]
    assert all(a + b > capacity for a, b in combinations(loads, 2))


@given(lengths, capacities, st.integers(1, 12), st.integers(1, RUNGS))
def test_micro_batches_hold_each_document_once_in_a_rung_of_the_ladder(
    values: np.ndarray, capacity: int, examples: int, rungs: int
) -> None:
    ladder = ladder_of(values, examples, capacity, rungs)
    assert len(ladder.rungs) <= rungs
    assert set(ladder.rungs) <= set(possible_rungs(ladder.top).tolist())
    for start in range(0, len(values), examples):
        step, rows = values[start : start + examples], np.arange(1000, 1000 + len(values[start : start + examples]))
        micro_batches = lay_out(rows, step, ladder)
        assert sorted(row for one in micro_batches for row in one.rows.tolist()) == rows.tolist()
        for one in micro_batches:
            assert one.tokens in ladder.rungs
            assert step[one.rows - 1000].sum() <= one.tokens
            assert one.rows.tolist() == sorted(one.rows.tolist())  # the order of the sampler
        again = lay_out(rows, step, ladder)
        assert [(a.rows.tolist(), a.tokens) for a in again] == [(a.rows.tolist(), a.tokens) for a in micro_batches]


@given(lengths, capacities, st.integers(1, 12), st.randoms(use_true_random=False))
def test_the_ladder_of_the_first_epoch_holds_every_step_of_every_order(
    values: np.ndarray, capacity: int, examples: int, random: object
) -> None:
    ladder = ladder_of(values, examples, capacity, most=int(np.sort(values)[-examples:].sum()))
    other = values.tolist()
    random.shuffle(other)  # type: ignore[attr-defined]
    assert layout(np.array(other), examples, ladder).real_tokens.sum() == values.sum()
    assert ladder.top <= max(round_down(capacity), round_up(int(values.max())))


@given(lengths, capacities, st.integers(1, 12))
def test_the_layout_counts_what_the_steps_do(values: np.ndarray, capacity: int, examples: int) -> None:
    """The shortcut for steps that take one micro-batch changes nothing."""
    ladder = ladder_of(values, examples, capacity)
    steps = [arrange(values[start : start + examples], ladder) for start in range(0, len(values), examples)]
    counted = layout(values, examples, ladder)
    assert counted.micro_batches.tolist() == [len(step) for step in steps]
    assert counted.processed_tokens.tolist() == [sum(tokens for _, tokens in step) for step in steps]
    assert counted.used == {rung: sum(t == rung for step in steps for _, t in step) for rung in ladder.rungs}


@settings(deadline=None)
@given(st.lists(st.integers(1, 640), min_size=1, max_size=12), st.integers(1, 4))
def test_the_chosen_ladder_pads_least_of_all(loads: list[int], rungs: int) -> None:
    def padded(ladder: tuple[int, ...]) -> int:
        return sum(Ladder(ladder).rung(load) for load in loads)

    chosen = choose_ladder(np.array(loads), 640, rungs)
    below = possible_rungs(640)[:-1].tolist()
    every = (sorted((*some, 640)) for size in range(rungs) for some in combinations(below, size))
    assert padded(chosen) == min(padded(tuple(one)) for one in every)
    assert chosen[-1] == 640
    assert len(chosen) <= rungs


@settings(deadline=None)
@given(st.lists(st.integers(1, 4096), min_size=1, max_size=60), st.floats(0.0, 0.1))
def test_with_slack_the_fewest_rungs_are_taken_that_pad_little_more(loads: list[int], slack: float) -> None:
    def processed(ladder: tuple[int, ...]) -> int:
        return sum(Ladder(ladder).rung(load) for load in loads)

    values = np.array(loads)
    best, chosen = choose_ladder(values, 4096), choose_ladder(values, 4096, slack=slack)
    allowed = (1 + slack) * processed(best)
    assert len(chosen) <= len(best)
    assert processed(chosen) <= allowed
    assert all(processed(choose_ladder(values, 4096, fewer)) > allowed for fewer in range(1, len(chosen)))


def test_rungs_are_multiples_of_32_up_to_512_of_64_up_to_4096_and_of_128_above() -> None:
    rungs = possible_rungs(4352).tolist()
    assert rungs == [*range(64, 513, 32), *range(576, 4097, 64), 4224, 4352]
    assert [round_up(n) for n in (1, 64, 65, 513, 4096, 4097, 4224)] == [64, 64, 96, 576, 4096, 4224, 4224]
    assert [round_down(n) for n in (1, 64, 127, 575, 4096, 4223, 4224)] == [64, 64, 96, 512, 4096, 4096, 4224]


@given(st.integers(1, 1 << 31))
def test_rounding_goes_to_the_neighbouring_rungs_and_pads_little(tokens: int) -> None:
    up, down = round_up(tokens), round_down(tokens)
    assert round_up(up) == up == round_down(up)
    assert round_up(down) == down == round_down(down)
    assert up >= tokens
    assert down <= max(tokens, 64)
    assert up in (down, round_up(down + 1))
    assert up - tokens < max(128, tokens / 512)


def test_a_document_of_millions_of_tokens_costs_the_choice_of_rungs_neither_time_nor_memory() -> None:
    assert len(possible_rungs(round_up(4_000_000))) < 5000
    tracemalloc.start()
    chosen = ladder_of(np.append(lognormal(3000), 2_000_000), 64, 16384)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert chosen.top == round_up(2_000_000)
    assert peak < 50 << 20  # over all possible rungs it would be hundreds of MB


def test_a_longer_document_raises_the_top_and_small_steps_lower_it() -> None:
    assert ladder_of(np.array([100, 5000, 200, 300]), 2, 2048).top == 5120
    assert ladder_of(np.array([100, 120, 110, 90]), 2, 16384, most=230).top == 256


def test_a_step_just_over_the_top_takes_two_even_rungs_instead_of_the_top_and_a_rest() -> None:
    ladder = Ladder((2048, 4608, 8192))
    assert sorted(tokens for _, tokens in arrange(np.full(90, 100), ladder)) == [4608, 4608]
    assert sorted(tokens for _, tokens in arrange(np.full(90, 100), Ladder((2048, 8192)))) == [2048, 8192]


def test_one_micro_batch_more_than_fit_is_used_only_where_it_saves_more_than_it_costs() -> None:
    values = np.array([600, 500])
    assert len(arrange(values, Ladder((640, 1792), overhead=512))) == 1  # saves 512 and costs 512
    assert len(arrange(values, Ladder((640, 1792), overhead=511))) == 2


@pytest.mark.parametrize(("examples", "least"), [(64, 0.97), (512, 0.99)])
def test_fill_of_long_tailed_lengths(examples: int, least: float) -> None:
    values = lognormal(20_000)
    fill = layout(values, examples, ladder_of(values, examples, 16384)).fill
    assert fill >= least
    # negative control: padding every document to the longest of its step, as a padding collator does
    padded = sum(len(values[s : s + 64]) * int(values[s : s + 64].max()) for s in range(0, len(values), 64))
    assert values.sum() / padded < 0.3


@pytest.mark.long
@pytest.mark.parametrize("examples", [2, 64, 512])
def test_a_million_lengths_are_planned_in_seconds(examples: int) -> None:
    """The whole plan, as a run and `dynotune plan` make it: content, order, ladder, layout and figures."""
    values = lognormal(1_000_000)
    ends = np.cumsum(values)
    spans = Spans(ends - values, ends, values - 1, np.zeros_like(values))
    began = time.process_time()
    plan = Plan(spans, np.arange(len(values)), BatchConfig(global_batch_size=examples), 0, "", 16384)
    figures = plan.to_json()
    assert time.process_time() - began < 5
    assert figures["layout"]["documents_lost"] == 0
    began = time.process_time()
    plan.step(plan.total_steps // 2)
    assert time.process_time() - began < 0.1  # a resume looks at no step before its own
