"""Promise: pairs with one prompt that meet in a micro-batch compute it once, and train as though each stood alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.config.dpo import DPOConfig
from dynotune.data.examples import IGNORE, Example, Examples
from dynotune.data.pairs import Pairs
from dynotune.data.rows import Place
from dynotune.execution.beginnings import beginnings_of
from dynotune.execution.pairs import PairItems, sides_of
from dynotune.model.families import lay_branches
from dynotune.plan.layout import MicroBatch
from dynotune.plan.pairs import Groups, PairSpans, pair_spans
from dynotune.plan.plan import Plan
from dynotune.plan.prompts import most_shared
from tests.execution.test_pairs import ALONE, of_step, one_by_one, paths  # noqa: F401  (a fixture)
from tests.tiny import tiny_model

PROMPT, ANSWERS = st.integers(0, 2), st.lists(st.integers(1, 3), min_size=2, max_size=5)
some_pairs = st.lists(st.tuples(PROMPT, ANSWERS, ANSWERS), min_size=1, max_size=10)


def pairs_of(drawn: Sequence[tuple[int, Sequence[int], Sequence[int]]], prompt_tokens: int = 3) -> Pairs:
    """Pairs of (number of a prompt, answers). Prompt n has n times so many tokens, answers have few kinds of tokens."""
    made = []
    for row, (prompt, *answers) in enumerate(drawn):
        asked = np.arange(10, 10 + prompt_tokens * prompt)
        for answer in answers:
            ids_T = np.concatenate([asked, answer]).astype(np.int32)
            labels_T = np.where(np.arange(len(ids_T)) < len(asked), IGNORE, ids_T).astype(np.int32)
            made.append(Example(ids_T, labels_T, Place("pairs.jsonl", row + 1)))
    return Pairs(Examples.from_list(made, per_example=2))


REPEATED = pairs_of(
    [
        (2, [50, 51, 52], [60, 61]),
        (1, [50, 51], [70]),
        (2, [50, 51, 52], [62, 63, 64]),  # the chosen answer once more
        (2, [62, 63, 64], [50, 51, 53]),  # an answer that was rejected is chosen
        (2, [80], [62, 63, 64]),
    ],
    prompt_tokens=4,
)


@given(some_pairs, st.randoms(use_true_random=False))
def test_what_is_counted_is_what_is_laid_out(drawn: Any, random: Any) -> None:
    pairs = pairs_of(drawn)
    spans = pair_spans(pairs, ALONE)
    rows = np.array(random.sample(range(len(pairs)), random.randint(1, len(pairs))))
    items = PairItems(pairs, spans).at(rows)
    once, again = spans.attention_of(rows)
    found = beginnings_of(items)
    assert [begun for _, begun in found] == again.tolist()
    laid = lay_branches(sides_of(items), found, int(once.sum() - again.sum()))
    assert list(laid.lengths) == (once - again).tolist()
    assert list(laid.key_lengths) == once.tolist()
    for sequence, (ids_T, _) in enumerate(sides_of(items)):
        keys = laid.key_rows_K[laid.key_boundaries_S1[sequence] : laid.key_boundaries_S1[sequence + 1]]
        assert laid.ids_T[keys].tolist() == ids_T.tolist()
        assert laid.positions_T[keys].tolist() == list(range(len(ids_T)))


def test_a_prompt_stands_once_and_a_repeated_answer_by_its_last_token() -> None:
    spans = pair_spans(REPEATED, ALONE)
    assert spans.lengths.tolist() == [13, 7, 14, 14, 12]
    once, again = spans.attention_of(np.arange(5))
    assert again.reshape(-1, 2).tolist() == [[0, 8], [0, 4], [10, 8], [10, 8], [8, 10]]
    assert int(once.sum() - again.sum()) == 13 + 7 + (1 + 3) + (1 + 3) + (1 + 1)
    assert pair_spans(REPEATED.taken(np.array([0, 1])), ALONE).alike is None
    apart = spans.apart()
    assert apart.attention_of(np.arange(5))[1].sum() == 0
    assert apart.together(np.arange(5), 64) is None


LAYOUTS: dict[str, Sequence[tuple[Sequence[int], int]]] = {
    "all together": [(range(5), 64)],
    "without padding": [(range(5), 30)],
    "in another order": [((4, 3, 1, 2, 0), 64)],
    "apart": [((row,), 64) for row in range(5)],
    "in two": [((0, 1), 64), ((2, 3, 4), 64)],
}


@pytest.mark.parametrize("kind", ["qwen2", "gemma2"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_step_that_shares_prompts_is_the_step_of_sides_one_by_one(layout: Any, kind: str, paths: Any) -> None:  # noqa: F811
    model = tiny_model(kind).train()
    spans = pair_spans(REPEATED, ALONE)
    items = PairItems(REPEATED, spans, -np.random.default_rng(1).uniform(5, 20, (5, 2)))
    right = one_by_one(model, items, beta=0.3)
    found = of_step(paths(model, beta=0.3), items, layout, spans)
    assert float(found[0]) == pytest.approx(float(right[0]), rel=1e-5)
    assert float((found[1] - right[1]).norm() / right[1].norm()) < 1e-4
    for name, value in right[2].items():
        assert found[2][name] == pytest.approx(value, rel=1e-4, abs=1e-5)


def test_losses_over_batches_share_prompts_too(paths: Any) -> None:  # noqa: F811
    """A group and a prompt may overlap in any way."""
    model = tiny_model().train()
    reference_PC = -np.random.default_rng(1).uniform(5, 20, (5, 2))
    path = paths(model, loss_type=["aot", "cpo"], beta=0.3)
    sorted_in = Groups(2, whole=True)
    spans = pair_spans(REPEATED, sorted_in)
    separate = PairItems(REPEATED, spans.apart(), reference_PC)
    step = np.array([3, 1, 0, 2, 4])
    outcomes = []
    for parts in ([(0, 1, 2, 3, 4)], [(0, 1), (2, 3, 4)], [(0, 1), (2, 3), (4,)]):
        batches = [MicroBatch(step[list(one)], 64, step) for one in parts]
        outcomes.append(of_batches(path, separate, batches, spans))
    for other in outcomes[1:]:
        assert float(other[0]) == pytest.approx(float(outcomes[0][0]), rel=1e-5)
        assert float((other[1] - outcomes[0][1]).norm() / outcomes[0][1].norm()) < 1e-4
        assert other[2] == pytest.approx(outcomes[0][2], rel=1e-4, abs=1e-5)


def of_batches(path: Any, items: PairItems, batches: Sequence[MicroBatch], spans: PairSpans) -> Any:
    """As `of_step`, of micro-batches of one step."""

    class InStep:
        def at(self, rows: np.ndarray) -> Any:
            return items.of(next(batch for batch in batches if batch.rows.tolist() == rows.tolist()))

    return of_step(path, InStep(), [(batch.rows.tolist(), batch.tokens) for batch in batches], spans)  # type: ignore[arg-type]


def test_made_up_pairs_share_nothing_with_each_other(paths: Any) -> None:  # noqa: F811
    path = paths(tiny_model())
    spans = pair_spans(REPEATED, ALONE)
    items = path.made_up(spans, np.array([0, 2, 3, 4]), 350)
    assert sum(path.tokens_of(one) for one in items) == int(spans.lengths[[0, 2, 3, 4]].sum())
    assert [begun for side, (_, begun) in enumerate(beginnings_of(items)) if side % 2 == 0] == [0] * 4


@given(some_pairs, st.integers(1, 3), st.booleans(), st.integers(1, 12), st.integers(64, 128), st.integers(1, 3))
def test_a_plan_keeps_prompts_together_as_far_as_they_fit(
    drawn: Any, size: int, whole: bool, batch: int, tokens: int, world: int
) -> None:
    pairs = pairs_of(drawn, prompt_tokens=20)
    spans = pair_spans(pairs, Groups(size, whole))
    config = DPOConfig(global_batch_size=batch, num_train_epochs=2)
    plan = Plan(spans, np.arange(len(pairs)), config, 0, micro_batch_tokens=tokens, world=world)
    items = PairItems(pairs, spans)
    for step in plan.steps():
        every = step.all_micro_batches
        assert sorted(row for one in every for row in one.rows.tolist()) == sorted(step.rows.tolist())
        for one in every:
            sides = sides_of(items.of(one))
            real = int(sum(len(ids) for ids, _ in sides) - sum(n for _, n in beginnings_of(items.of(one))))
            assert real == one.real_tokens <= one.tokens
        assert step.real_tokens == sum(one.real_tokens for one in every)
        assert step.attention is not None
        assert step.attention[0].sum() - step.attention[1].sum() == step.real_tokens
        if spans._tokens(step.rows) <= plan.ladder.top and not whole:  # type: ignore[union-attr]
            prompts = {drawn[row][0] for row in step.rows.tolist()} - {0}
            homes = [
                {i for i, one in enumerate(every) if p in {drawn[r][0] for r in one.rows.tolist()}} for p in prompts
            ]
            assert all(len(home) == 1 for home in homes)
    layout = plan.layout
    first = [plan.step(number + 1) for number in range(plan.steps_per_epoch)]
    assert layout.real_tokens.tolist() == [step.real_tokens for step in first]
    assert layout.processed_tokens.tolist() == [step.processed_tokens for step in first]
    figures = plan.to_json()["layout"]
    assert figures["documents_lost"] == 0
    whole_tokens = int(pairs.lengths.sum())
    assert figures.get("tokens_saved_by_sharing", 0) == whole_tokens - sum(step.real_tokens for step in first)
    assert figures["tokens_per_epoch"]["masked"] == whole_tokens - int(spans.label_tokens.sum())


@given(some_pairs, st.integers(1, 4))
def test_the_micro_batch_with_most_keys_is_found(drawn: Any, size: int) -> None:
    """Of all that a plan makes; none where every prompt of a step is another."""
    pairs = pairs_of(drawn)
    config = DPOConfig(per_device_train_batch_size=size, train_sampling_strategy="sequential")
    plan = Plan(pair_spans(pairs, ALONE), np.arange(len(pairs)), config, 0).executed(64)  # type: ignore[arg-type]
    together = [
        step.number
        for step in list(plan.steps())[: plan.steps_per_epoch]
        if len(asked := [drawn[row][0] for row in step.rows if drawn[row][0]]) > len(set(asked))
    ]
    found = most_shared(plan)
    assert (found is None) == (not together)
    if found is not None:
        steps = [plan.step(number) for number in together]
        most = max(int(plan.spans.attention_of(b.rows)[0].sum()) for step in steps for b in step.micro_batches)
        assert int(plan.spans.attention_of(found.rows)[0].sum()) == most
