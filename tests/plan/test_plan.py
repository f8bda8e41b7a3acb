"""Promise: the batch settings fix what a step contains, every row is seen once an epoch, and resuming is an index."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.config.keys.batch import BatchConfig
from dynotune.errors import DataError
from dynotune.plan.plan import Plan
from dynotune.plan.truncation import Spans


def spans_of(lengths: list[int]) -> Spans:
    end = np.cumsum(lengths)
    return Spans(end - np.array(lengths), end, np.array(lengths) - 1, np.zeros(len(lengths), np.int64))


def plan_of(rows: int, seed: int = 0, micro_batch_tokens: int | None = None, **batch: Any) -> Plan:
    spans = spans_of([2 + i % 7 for i in range(rows)])
    return Plan(spans, np.arange(rows), BatchConfig(**batch), seed, micro_batch_tokens=micro_batch_tokens)


sizes = {"rows": st.integers(1, 60), "batch": st.integers(1, 9), "accumulation": st.integers(1, 4)}


@given(**sizes, epochs=st.integers(1, 3))
def test_every_row_is_seen_exactly_once_an_epoch(rows: int, batch: int, accumulation: int, epochs: int) -> None:
    plan = plan_of(
        rows, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, num_train_epochs=epochs
    )
    steps = list(plan.steps())
    assert len(steps) == plan.total_steps == epochs * math.ceil(rows / (batch * accumulation))
    for epoch in range(epochs):
        seen = np.concatenate(
            [s.rows for s in steps[epoch * plan.steps_per_epoch : (epoch + 1) * plan.steps_per_epoch]]
        )
        assert sorted(seen.tolist()) == list(range(rows))
    assert all(len(s.rows) == batch * accumulation for s in steps if s.number % plan.steps_per_epoch)


@given(**sizes, at=st.integers(0, 40))
def test_resuming_is_an_index(rows: int, batch: int, accumulation: int, at: int) -> None:
    kwargs = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation, "max_steps": 41}
    whole = [s.rows.tolist() for s in plan_of(rows, **kwargs).steps()]
    assert [s.rows.tolist() for s in plan_of(rows, **kwargs).steps(after=at)] == whole[at:]


@given(rows=st.integers(2, 60), seed=st.integers(0, 9))
def test_the_order_depends_on_seed_and_epoch_and_not_on_the_batch(rows: int, seed: int) -> None:
    def order(**batch: Any) -> list[int]:
        return np.concatenate([s.rows for s in plan_of(rows, seed, num_train_epochs=2, **batch).steps()]).tolist()

    assert order(per_device_train_batch_size=3) == order(global_batch_size=7)
    assert order(data_seed=seed) == order()


def test_two_epochs_and_two_seeds_differ() -> None:
    """Negative control of the test above: the order is not constant."""
    plan = plan_of(50, seed=1, per_device_train_batch_size=50, num_train_epochs=2)
    first, second = (s.rows.tolist() for s in plan.steps())
    assert first != second
    assert first != plan_of(50, seed=2, per_device_train_batch_size=50).step(1).rows.tolist()


def test_sequential_keeps_the_order_of_the_data() -> None:
    plan = plan_of(5, per_device_train_batch_size=2, train_sampling_strategy="sequential", num_train_epochs=1)
    assert [s.rows.tolist() for s in plan.steps()] == [[0, 1], [2, 3], [4]]


def test_drop_last_leaves_out_what_it_says() -> None:
    plan = plan_of(11, per_device_train_batch_size=4, dataloader_drop_last=True, num_train_epochs=1)
    assert [len(s.rows) for s in plan.steps()] == [4, 4]
    assert plan.to_json()["examples_left_out_by_drop_last"] == 3


def test_drop_last_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="3 rows do not fill one batch of 4"):
        plan_of(3, per_device_train_batch_size=4, dataloader_drop_last=True)


@given(**sizes, epochs=st.integers(1, 3))
def test_epochs_are_counted_as_transformers_counts_them(rows: int, batch: int, accumulation: int, epochs: int) -> None:
    """transformers: an epoch's batches that are done over its batches, of which its last step may have fewer."""
    plan = plan_of(
        rows, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, num_train_epochs=epochs
    )
    batches = math.ceil(rows / batch)
    per_epoch = [min(done + accumulation, batches) / batches for done in range(0, batches, accumulation)]
    expected = [epoch + part for epoch in range(epochs) for part in per_epoch]
    assert [step.epoch for step in plan.steps()] == pytest.approx(expected)


@given(rows=st.integers(1, 200), batch=st.integers(1, 16), accumulation=st.integers(1, 8), epochs=st.floats(0.05, 3.5))
def test_the_number_of_steps_is_transformers(rows: int, batch: int, accumulation: int, epochs: float) -> None:
    """transformers: batches = ceil(rows / batch), steps = ceil(batches / accumulation), total = ceil(epochs * steps)."""
    plan = plan_of(
        rows, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, num_train_epochs=epochs
    )
    assert plan.total_steps == math.ceil(epochs * math.ceil(math.ceil(rows / batch) / accumulation))


@given(**sizes, tokens=st.integers(1, 500))
def test_the_execution_changes_nothing_of_what_steps_contain(
    rows: int, batch: int, accumulation: int, tokens: int
) -> None:
    """Promise: packed execution keeps every step's examples, whatever a micro-batch may hold."""
    kwargs = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
    plain, packed = plan_of(rows, **kwargs), plan_of(rows, micro_batch_tokens=tokens, **kwargs)
    assert packed.content() == plain.content()
    for one, other in zip(plain.steps(), packed.steps(), strict=True):
        assert one.rows.tolist() == other.rows.tolist()
        assert one.label_tokens == other.label_tokens
        assert sorted(np.concatenate([m.rows for m in other.micro_batches]).tolist()) == sorted(one.rows.tolist())
        assert one.processed_tokens == one.real_tokens <= other.processed_tokens
        assert all(m.tokens in packed.ladder.rungs for m in other.micro_batches)


@given(rows=st.integers(1, 60), max_steps=st.integers(1, 9), world=st.integers(1, 3))
def test_what_a_run_executes_is_known_ahead_and_a_short_one_does_not_wait_for_other_steps(
    rows: int, max_steps: int, world: int
) -> None:
    """Each token count is compiled for before the first step: a run of few steps needs few of them."""
    spans = spans_of([2 + 40 * i % 97 for i in range(rows)])
    batch = BatchConfig(global_batch_size=7, max_steps=max_steps)
    plan = Plan(spans, np.arange(rows), batch, 0, micro_batch_tokens=256, world=world)
    found = Counter(one.tokens for step in plan.steps() for one in step.all_micro_batches)
    if max_steps <= plan.steps_per_epoch:
        assert plan.layout_of_run.used == found
    else:
        assert found.keys() <= plan.layout_of_run.used.keys() == {*plan.ladder.rungs}


def test_a_packed_step_needs_no_step_before_it() -> None:
    kwargs = {"per_device_train_batch_size": 7, "num_train_epochs": 3, "micro_batch_tokens": 64}
    whole = [[m.rows.tolist() for m in s.micro_batches] for s in plan_of(60, **kwargs).steps()]
    assert [m.rows.tolist() for m in plan_of(60, **kwargs).step(20).micro_batches] == whole[19]


def test_executed_otherwise_it_is_the_same_plan() -> None:
    plain = plan_of(60, per_device_train_batch_size=16)
    packed = plain.executed(128)
    assert packed.ladder is not None
    assert packed.ladder.top == 128
    assert plain.ladder is None
    assert packed.executed(None).to_json() == plain.to_json()
    held_out = packed.executed(128, longest=1000).ladder
    assert held_out is not None
    assert held_out.top == 1024
