"""Promise: pairs that belong together stand in one micro-batch, on any ranks, and the plan knows what that takes."""

from itertools import groupby
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dynotune.config.keys.batch import BatchConfig
from dynotune.plan import plan as plan_module
from dynotune.plan.pairs import Groups, PairSpans
from dynotune.plan.plan import Plan
from dynotune.train.evaluate import HeldOut

lengths = st.lists(st.integers(4, 400), min_size=1, max_size=40)


def spans_of(values: list[int], groups: Groups) -> PairSpans:
    """Pairs of so many tokens, a quarter of them a common prompt, a token of each answer labelled."""
    n = np.array(values)
    prompt = n // 4
    sides = np.stack([prompt + (n - prompt) // 2, n - (n - prompt) // 2], 1)
    labels = np.ones((len(n), 2), np.int64)
    return PairSpans(n, labels.sum(1), labels, prompt, sides, groups)


def plan_of(spans: PairSpans, **keys: Any) -> Plan:
    given = {name: keys.pop(name) for name in ("micro_batch_tokens", "rank", "world") if name in keys}
    return Plan(spans, np.arange(len(spans.lengths)), BatchConfig(**keys), 0, **given)


@given(lengths, st.integers(1, 5), st.integers(1, 12), st.integers(64, 600) | st.none(), st.integers(1, 3))
def test_groups_are_whole_wherever_they_are_run(
    values: list[int], size: int, batch: int, tokens: int | None, world: int
) -> None:
    spans = spans_of(values, Groups(size, whole=True))
    plan = plan_of(spans, global_batch_size=batch, num_train_epochs=2, micro_batch_tokens=tokens, world=world)
    steps = list(plan.steps())
    for step in steps:
        where = {row: i for i, one in enumerate(step.all_micro_batches) for row in one.rows.tolist()}
        assert sorted(where) == sorted(step.rows.tolist())
        assert sum(len(one.rows) for one in step.all_micro_batches) == len(step.rows)
        for first in range(0, len(step.rows), size):
            assert len({where[row] for row in step.rows[first : first + size].tolist()}) == 1
        for one in step.all_micro_batches:
            places = [step.rows.tolist().index(row) for row in one.rows.tolist()]
            assert places == sorted(places)
            assert spans.lengths[one.rows].sum() <= one.tokens
            assert one.step_rows is not None
            assert one.step_rows.tolist() == step.rows.tolist()
    first_epoch = steps[: plan.steps_per_epoch]
    assert plan.layout.processed_tokens.tolist() == [step.processed_tokens for step in first_epoch]
    assert plan.layout.micro_batches.tolist() == [len(step.all_micro_batches) for step in first_epoch]
    assert plan.to_json()["layout"]["documents_lost"] == 0
    groups = [s.rows[i : i + size] for s in steps for i in range(0, len(s.rows), size)]
    assert plan.longest == max(int(spans.lengths[rows].sum()) for rows in groups)


def test_apart_unless_a_loss_sorts() -> None:
    """Negative control: groups that need not be whole are laid out by pairs."""
    values = [300, 20, 300, 20, 300, 200]
    plan = plan_of(spans_of(values, Groups(2, whole=False)), global_batch_size=6, micro_batch_tokens=320)
    assert plan.longest == 300
    assert any(len(one.rows) % 2 for one in plan.step(1).micro_batches)
    whole = plan_of(spans_of(values, Groups(2, whole=True)), global_batch_size=6, micro_batch_tokens=320)
    assert not any(len(one.rows) % 2 for one in whole.step(1).micro_batches)


def test_a_run_of_very_many_epochs_takes_a_bound(monkeypatch: Any) -> None:
    spans = spans_of([10, 300, 20, 200, 30, 40], Groups(2, whole=True))
    asked = {"global_batch_size": 2, "num_train_epochs": 50}
    exact = plan_of(spans, **asked).longest
    monkeypatch.setattr(plan_module, "MOST_LOOKED_AT", 100)
    assert exact <= plan_of(spans, **asked).longest == 500


@given(st.integers(1, 5000), st.integers(1, 700))
def test_parts_of_held_out_pairs_keep_groups_whole(rows: int, size: int) -> None:
    held = HeldOut(None, spans_of([4] * rows, Groups(size, whole=True)), np.arange(rows))  # type: ignore[arg-type]
    parts = list(held.parts())
    assert np.concatenate(parts).tolist() == list(range(rows))
    assert all(int(part[0]) % size == 0 for part in parts)
    assert max(map(len, parts)) < 2048 + 2 * size


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=60), st.sampled_from(["random", "sequential"]), st.integers(1, 9)
)
def test_a_set_follows_itself_in_every_epoch(sets: list[int], strategy: Any, batch: int) -> None:
    spans, numbers = spans_of([10] * len(sets), Groups(1, whole=False)), np.array(sets)
    config = BatchConfig(global_batch_size=batch, num_train_epochs=2, train_sampling_strategy=strategy)
    plan = Plan(spans, np.arange(len(sets)), config, 0, sets=numbers)
    steps = [step.rows for step in plan.steps()]
    for epoch in (0, 1):
        rows = np.concatenate(steps[epoch * plan.steps_per_epoch : (epoch + 1) * plan.steps_per_epoch])
        assert sorted(rows.tolist()) == list(range(len(sets)))
        seen = numbers[rows].tolist()
        assert len(list(groupby(seen))) == len({*sets})
        if strategy == "sequential":
            assert seen == sorted(sets, key=sets.index)
            assert all(rows[i] < rows[i + 1] for i in range(len(rows) - 1) if seen[i] == seen[i + 1])
    assert "one prompt together" in plan.content()["order"]


def test_sets_come_in_another_order_each_epoch() -> None:
    """Negative control: what is together is not what makes the order."""
    numbers = np.arange(60) // 3
    config = BatchConfig(global_batch_size=60, num_train_epochs=2)
    plan = Plan(spans_of([10] * 60, Groups(1, whole=False)), np.arange(60), config, 0, sets=numbers)
    first, second = (step.rows for step in plan.steps())
    assert numbers[first].tolist() != numbers[second].tolist()
    assert first.reshape(-1, 3).tolist() != np.sort(first.reshape(-1, 3)).tolist()
    apart = Plan(plan.spans, plan.rows, config, 0)
    assert len(list(groupby(numbers[apart.step(1).rows].tolist()))) > 40


def test_what_grouping_by_prompt_does_is_said() -> None:
    def said(prompts: list[int]) -> str:
        spans = spans_of([10] * len(prompts), Groups(1, whole=False))
        return Plan(spans, np.arange(len(prompts)), BatchConfig(), 0, sets=np.array(prompts)).summary()[-1]

    assert said([5, 6, 5, 7, 6]).startswith("behavioural: `group_by_prompt: true`: 4 of 5 pairs")
    assert said([5, 6, 7]).startswith("note: `group_by_prompt: true` does nothing")
