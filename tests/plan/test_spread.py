"""Promise: a step's documents are spread over ranks by cost, evenly, each once, in equally many micro-batches."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.config.keys.batch import BatchConfig
from dynotune.plan.plan import Plan
from dynotune.plan.ranked import EMPTY_TOKENS
from dynotune.plan.spread import Cost, imbalance, spread
from tests.plan.test_plan import spans_of

lengths = st.lists(st.integers(2, 900), min_size=1, max_size=40)
worlds = st.integers(1, 9)
NEAR = 1.02
"""What the most loaded rank may cost, in units of the least that is possible."""


@given(lengths, worlds, st.integers(1, 100_000))
def test_every_document_goes_to_one_rank(values: list[int], world: int, even_at: int) -> None:
    costs = Cost(even_at).of(np.array(values))
    shares = spread(costs, world)
    assert len(shares) == world
    assert sorted(i for one in shares for i in one.tolist()) == list(range(len(values)))
    assert all(one.tolist() == sorted(one.tolist()) for one in shares)
    assert [one.tolist() for one in spread(costs, world)] == [one.tolist() for one in shares]


@given(lengths, worlds)
def test_no_rank_exceeds_the_least_possible_by_more_than_a_document(values: list[int], world: int) -> None:
    costs = Cost().of(np.array(values))
    loads = [int(costs[one].sum()) for one in spread(costs, world)]
    least = max(max(costs.tolist()), -(-int(costs.sum()) // world))
    assert max(loads) <= least + max(costs.tolist())


def test_exchanges_find_what_longest_first_misses() -> None:
    """Negative control of the balance: longest first alone is a sixth worse here."""
    costs = np.array([5, 5, 4, 4, 3, 3, 3])
    assert sorted(int(costs[one].sum()) for one in spread(costs, 3)) == [9, 9, 9]


@pytest.mark.parametrize("world", [2, 4, 8, 16])
def test_real_conversations_are_spread_evenly(shared: Path, world: int) -> None:
    """`sft_mix`, 64 examples a step, every step of an epoch. Lengths in characters over four: the shape is what counts."""
    with gzip.open(shared / "data" / "sft" / "sft_mix.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    values = [max(2, sum(len(m["content"]) for m in row["messages"]) // 4) for row in rows if row.get("messages")]
    assert len(values) > 1000
    plan = Plan(
        spans_of(values), np.arange(len(values)), BatchConfig(global_batch_size=64), 0, rank=world - 1, world=world
    )
    found = plan.executed(16_384).layout.imbalance[:-1]  # the last step may be short
    print(f"{world} ranks: {found.mean():.4f}, at most {found.max():.4f}")
    assert found.max() <= NEAR
    as_many = np.array_split(np.arange(64), world)
    by_count = [imbalance(Cost().of(plan.step(number).lengths), as_many) for number in range(1, 50)]
    assert np.median(by_count) > NEAR  # negative control: as many documents on each rank is not balance


@given(lengths, worlds, st.none() | st.integers(900, 1500), st.integers(1, 12))
def test_ranks_together_run_each_document_once_in_equally_many_micro_batches(
    values: list[int], world: int, tokens: int | None, batch: int
) -> None:
    def plan_of(rank: int) -> Plan:
        config = BatchConfig(global_batch_size=batch, num_train_epochs=1)
        return Plan(
            spans_of(values), np.arange(len(values)), config, 0, micro_batch_tokens=tokens, rank=rank, world=world
        )

    ranks = [list(plan_of(rank).steps()) for rank in range(world)]
    alone = list(Plan(spans_of(values), np.arange(len(values)), BatchConfig(global_batch_size=batch), 0).steps())
    for step, *others in zip(alone, *ranks, strict=False):
        own = [one for rank in others for batch_ in rank.micro_batches for one in batch_.rows.tolist()]
        assert sorted(own) == sorted(step.rows.tolist())
        assert len({len(rank.micro_batches) for rank in others}) == 1
        for rank in others:
            assert rank.rows.tolist() == step.rows.tolist()
            assert (rank.real_tokens, rank.label_tokens) == (step.real_tokens, step.label_tokens)
            assert rank.processed_tokens == sum(b.tokens for one in others for b in one.micro_batches)
            for b in rank.micro_batches:
                real = int(rank.lengths[np.isin(rank.rows, b.rows)].sum())
                assert real <= b.tokens
                if not len(b.rows) and tokens is None:
                    assert b.tokens == EMPTY_TOKENS
    plan = plan_of(world - 1)
    layout = plan.layout
    assert layout.processed_tokens.tolist() == [step.processed_tokens for step in ranks[0]]
    assert layout.micro_batches.tolist() == [len(step.all_micro_batches) for step in ranks[0]]
    assert int(layout.documents.sum()) == len(values)
    assert plan.to_json()["layout"]["documents_lost"] == 0


@given(lengths, st.integers(2, 9), st.integers(1, 4), st.integers(1, 3))
def test_devices_multiply_the_content_of_a_step_unless_it_is_fixed(
    values: list[int], world: int, batch: int, accumulation: int
) -> None:
    config = BatchConfig(per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation)
    plan = Plan(spans_of(values), np.arange(len(values)), config, 0, world=world)
    assert plan.examples_per_step == batch * accumulation * world
    fixed = Plan(spans_of(values), np.arange(len(values)), BatchConfig(global_batch_size=7), 0, world=world)
    assert fixed.examples_per_step == 7  # which does not divide by most numbers of ranks


def test_the_cost_follows_the_flops() -> None:
    cost = Cost.of_flops(per_token=6_000, attention=3 * 1000 * 1000, tokens=1000)  # 3 a pair, 6,000 a token
    assert cost.even_at == 2000
    assert cost.of(np.array([2000])).tolist() == [2 * 2000 * 2000]
