"""Promise: a step of pairs has the loss, gradient and metrics of its sides run one by one, whatever the micro-batches."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dynotune.config.dpo import DPOConfig
from dynotune.data.examples import IGNORE, Example, Examples
from dynotune.data.pairs import Pairs
from dynotune.data.rows import Place
from dynotune.execution.pairs import Pair, PairItems, PairsPath
from dynotune.execution.paths import PairPaths
from dynotune.execution.plain_pairs import PlainPairsPath
from dynotune.model.forward import logits_of_document
from dynotune.model.precision import Precision
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.plan.pairs import Groups, PairSpans, pair_spans
from dynotune.plan.plan import Plan
from dynotune.speedups.choose import decide
from dynotune.speedups.contract import Context
from dynotune.speedups.installed import Installed
from dynotune.speedups.registry import speedups
from dynotune.speedups.site import Site
from tests.tiny import tiny_model

CPU, FULL = torch.device("cpu"), Precision(torch.float32, False)
SHAPES = ((9, 4, 7), (14, 6, 1), (3, 11, 11), (20, 2, 9), (1, 5, 3), (8, 8, 8))
"""Tokens of prompt, chosen and rejected answer."""

ALONE = Groups(1, whole=False)


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    rng, made = np.random.default_rng(0), []
    for row, (prompt, *answers) in enumerate(SHAPES):
        asked = rng.integers(5, 350, prompt)
        sides = [np.concatenate([asked, rng.integers(5, 350, n)]).astype(np.int32) for n in answers]
        if row == 2:  # answers that begin alike
            sides[1][: prompt + 4] = sides[0][: prompt + 4]
        for ids_T in sides:
            labels_T = ids_T.copy()
            labels_T[:prompt] = IGNORE
            made.append(Example(ids_T, labels_T, Place("pairs.jsonl", row + 1)))
    return Pairs(Examples.from_list(made, per_example=2))


@pytest.fixture
def paths() -> Iterator[Any]:
    with ExitStack() as stack:

        def make(model: Any, **keys: Any) -> PairsPath:
            config = DPOConfig(packed_execution="on", **keys)
            context = Context(config, model, CPU, torch.float32, FULL, longest=64)
            site = Site(context, lambda: torch.autocast("cpu", enabled=False))
            stack.callback(Installed(decide(config, context, speedups()), site).close)
            path = PairsPath(site, PreferenceObjective(config))
            stack.callback(path.close)
            return path

        yield make


def of_step(
    path: PairsPath | PlainPairsPath, items: PairItems, layout: Sequence[tuple[Sequence[int], int]], spans: PairSpans
) -> Any:
    """Loss, gradient and metrics of all pairs, in these micro-batches: numbers of pairs, and tokens."""
    model = path.model
    model.zero_grad()
    rows = np.concatenate([np.array(some, np.int64) for some, _ in layout])
    counts = path.objective.counts(spans, rows)
    total, sums = torch.zeros(()), torch.zeros(len(path.objective.sums))
    for some, tokens in layout:
        host = path.host_batch(items.at(np.array(some, np.int64)), tokens, pin=False)
        with path.engaged():
            loss, more = path.loss(host.unpack(host.buffer))
            (loss / counts[0]).backward()
        total += loss.detach()
        sums += more
    gradient = torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in model.parameters()])
    metrics = {name: float(s) / n for name, s, n in zip(path.objective.sums, sums, counts[1:], strict=True)}
    return total / counts[0], gradient, metrics


def one_by_one(model: Any, items: PairItems, beta: float) -> tuple[Tensor, Tensor, dict[str, float]]:
    """DPO's loss from its paper, every side in a pass of its own through stock transformers."""
    model.zero_grad()
    losses, chosen, rejected = [], [], []
    for pair in items.at(np.arange(len(items.pairs))):
        policy = [logps(model, *side) for side in (pair.chosen, pair.rejected)]
        rewards = [beta * (mine - their) for mine, their in zip(policy, pair.reference_C.tolist(), strict=True)]
        losses.append(-F.logsigmoid(rewards[0] - rewards[1]))
        chosen.append(float(rewards[0]))
        rejected.append(float(rewards[1]))
    loss = torch.stack(losses).mean()
    loss.backward()
    gradient = torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in model.parameters()])
    right = {"rewards/chosen": np.mean(chosen), "rewards/rejected": np.mean(rejected),
             "rewards/accuracies": np.mean(np.array(chosen) > np.array(rejected))}  # fmt: skip
    return loss.detach(), gradient, {name: float(value) for name, value in right.items()}


def logps(model: Any, ids: np.ndarray, labels: np.ndarray) -> Tensor:
    logits_TV = logits_of_document(model, torch.from_numpy(ids).long())
    targets_T = torch.from_numpy(labels).long()[1:]
    kept = targets_T != IGNORE
    return logits_TV[:-1].log_softmax(-1)[kept].gather(-1, targets_T[kept][:, None]).sum()


LAYOUTS: dict[str, Sequence[tuple[Sequence[int], int]]] = {
    "one micro-batch": [(range(6), 192)],
    "without padding": [(range(6), 133)],
    "three, in another order, and an empty one": [((5, 0), 64), ((4, 1, 3), 128), ((), 64), ((2,), 64)],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_any_micro_batching_is_the_step_of_sides_one_by_one(layout: Any, pairs: Pairs, paths: Any) -> None:
    model = tiny_model().train()
    spans = pair_spans(pairs, ALONE)
    rng = np.random.default_rng(1)
    items = PairItems(pairs, spans, -rng.uniform(10, 60, (len(pairs), 2)))
    right = one_by_one(model, items, beta=0.3)
    tokens = int(spans.lengths.sum())
    layout = [(some, max(size, tokens) if size == 133 else size) for some, size in layout]
    found = of_step(paths(model, beta=0.3), items, layout, spans)
    assert float(found[0]) == pytest.approx(float(right[0]), rel=1e-5)
    assert float((found[1] - right[1]).norm() / right[1].norm()) < 1e-4
    for name, value in right[2].items():
        assert found[2][name] == pytest.approx(value, rel=1e-4, abs=1e-5)


def test_the_reference_counts(pairs: Pairs, paths: Any) -> None:
    """Negative control: of other pairs it gives another loss."""
    model = tiny_model().train()
    reference_PC = -np.random.default_rng(1).uniform(10, 60, (len(pairs), 2))
    spans, path, layout = pair_spans(pairs, ALONE), paths(model, beta=0.3), [(range(6), 192)]
    right = of_step(path, PairItems(pairs, spans, reference_PC), layout, spans)
    wrong = of_step(path, PairItems(pairs, spans, reference_PC[::-1].copy()), layout, spans)
    assert abs(float(right[0] - wrong[0])) > 0.01


@pytest.mark.parametrize("keys", [{"ld_alpha": 0.5}, {"use_weighting": True}, {"loss_type": ["simpo"], "beta": 2.0}])
def test_what_losses_ask_for_reaches_them_in_any_micro_batching(keys: Any, pairs: Pairs, paths: Any) -> None:
    model = tiny_model().train()
    columns = 4 if "ld_alpha" in keys else 2
    items = PairItems(pairs, pair_spans(pairs, ALONE), -np.random.default_rng(1).uniform(10, 60, (len(pairs), columns)))
    path, spans = paths(model, **keys), pair_spans(pairs, ALONE)
    one, *others = (
        of_step(path, items, layout, spans) for layout in ([(range(6), 192)], [((3, 1), 128), ((0, 2, 5, 4), 128)])
    )
    for other in others:
        assert float(other[0]) == pytest.approx(float(one[0]), rel=1e-5)
        assert float((other[1] - one[1]).norm() / one[1].norm()) < 1e-4
        assert other[2] == pytest.approx(one[2], rel=1e-4, abs=1e-5)


ASKED: dict[str, dict[str, Any]] = {
    "sigmoid": {"beta": 0.3},
    "tails": {"ld_alpha": 0.5},
    "weighted": {"use_weighting": True},
    "without a reference": {"loss_type": ["simpo"], "beta": 2.0},
}


def items_for(keys: dict[str, Any], pairs: Pairs) -> PairItems:
    columns = {"ld_alpha": 4, "loss_type": 0}.get(next(iter(keys)), 2)
    return PairItems(pairs, pair_spans(pairs, ALONE), -np.random.default_rng(1).uniform(10, 60, (len(pairs), columns)))


def equal(found: Any, right: Any) -> None:
    """Loss, gradient and metrics of a step, to P1."""
    assert float(found[0]) == pytest.approx(float(right[0]), rel=1e-5)
    assert float((found[1] - right[1]).norm() / right[1].norm()) < 1e-4
    assert found[2] == pytest.approx(right[2], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("keys", ASKED.values(), ids=ASKED)
def test_the_plain_path_is_the_packed_one(keys: Any, pairs: Pairs, paths: Any) -> None:
    model = tiny_model().train()
    packed, spans, items = paths(model, **keys), pair_spans(pairs, ALONE), items_for(keys, pairs)
    plain = PairPaths(packed.objective).plain(model)
    right = of_step(plain, items, [((row,), int(spans.side_lengths[row].sum())) for row in range(6)], spans)
    assert len(right[2]) == len(packed.objective.sums)
    equal(of_step(packed, items, [(range(6), 192)], spans), right)
    equal(of_step(plain, items, [((3, 1), 60), ((), 64), ((5, 2, 0, 4), 200)], spans), right)


def test_a_model_that_cannot_be_packed_is_trained_plainly(pairs: Pairs) -> None:
    model = tiny_model("bloom").train()
    path, items = PlainPairsPath(model, PreferenceObjective(DPOConfig(beta=0.3))), items_for(ASKED["sigmoid"], pairs)
    found = of_step(path, items, [((row,), 64) for row in range(6)], pair_spans(pairs, ALONE))
    right = one_by_one(model, items, beta=0.3)
    assert float(found[0]) == pytest.approx(float(right[0]), rel=1e-5)
    assert float((found[1] - right[1]).norm() / right[1].norm()) < 1e-4


@pytest.mark.parametrize("keys", ASKED.values(), ids=ASKED)
def test_pairs_are_the_same_with_all_logits_and_one_by_one(keys: Any, pairs: Pairs, paths: Any) -> None:
    """What the search for a culprit runs instead of the head on label tokens, and instead of packed execution."""
    model = tiny_model().train()
    path, spans, items = paths(model, **keys), pair_spans(pairs, ALONE), items_for(keys, pairs)
    right = of_step(path, items, [(range(6), 192)], spans)
    path.site.labelled_rows = False
    assert not path.labelled_rows_head
    equal(of_step(path, items, [(range(6), 192)], spans), right)
    model.zero_grad()
    host = path.host_batch(items.at(np.arange(6)), 192, pin=False)
    loss = path.loss_one_by_one(host.unpack(host.buffer)) / 6
    loss.backward()
    gradient = torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in model.parameters()])
    equal((loss, gradient, right[2]), right)


APART = {"speedups": {"shared_prompt": "off"}}


@pytest.mark.parametrize("keys", ASKED.values(), ids=ASKED)
def test_sides_that_share_nothing_are_the_same_step(keys: Any, pairs: Pairs, paths: Any) -> None:
    """What a model runs that cannot compute a common beginning once."""
    items = items_for(keys, pairs)
    shared, apart = paths(tiny_model().train(), **keys), paths(tiny_model().train(), **keys, **APART)
    spans = pair_spans(pairs, ALONE)
    right = of_step(shared, items, [(range(6), 192)], spans)
    longer = apart.units(spans)
    assert shared.units(spans) is spans
    assert longer.lengths.tolist() == [2 * p + c + r for p, c, r in SHAPES]
    assert [apart.tokens_of(pair) for pair in items.at(np.arange(6))] == longer.lengths.tolist()
    equal(of_step(apart, items, [(range(6), 192)], longer), right)
    equal(of_step(apart, items, [((5, 0), 128), ((4, 1, 3), 128), ((), 64), ((2,), 64)], longer), right)
    host = apart.host_batch(items.at(np.arange(6)), 192, pin=False)
    assert float(apart.loss_one_by_one(host.unpack(host.buffer)) / 6) == pytest.approx(float(right[0]), rel=1e-5)


def test_one_by_one_the_reference_of_the_step_is_computed_so_too(pairs: Pairs, paths: Any) -> None:
    """The model is its own reference here, so sigmoid's loss is ln 2: packed attention is not in its place meanwhile."""
    path = paths(tiny_model().train(), beta=0.3)
    path.in_step.context = torch.no_grad
    host = path.host_batch(items_for(ASKED["sigmoid"], pairs).at(np.arange(6)), 192, pin=False)
    assert float(path.loss_one_by_one(host.unpack(host.buffer)) / 6) == pytest.approx(np.log(2), rel=1e-7)


@pytest.mark.parametrize("more", [{}, APART])
def test_made_up_pairs_have_the_shapes_of_rows(more: Any, pairs: Pairs, paths: Any) -> None:
    path = paths(tiny_model(), ld_alpha=0.5, **more)
    units, rows = path.units(pair_spans(pairs, ALONE)), np.array([4, 0, 2])
    made = path.made_up(units, rows, vocabulary=300)
    assert [path.tokens_of(pair) for pair in made] == units.lengths_of(rows).tolist()
    assert [[len(ids) for ids, _ in pair[:2]] for pair in made] == units.side_lengths[rows].tolist()
    assert all(labels[-1] != IGNORE for pair in made for _, labels in pair[:2])
    assert [pair.reference_C.shape for pair in made] == [(4,)] * 3


def test_a_plan_of_pairs_keeps_them_whole_and_counts_what_they_share(pairs: Pairs) -> None:
    spans = pair_spans(pairs, ALONE)
    shared = [9, 14, 7, 20, 1, 8]
    assert spans.shared_tokens.tolist() == shared
    assert spans.lengths.tolist() == [p + p + c + r - s for (p, c, r), s in zip(SHAPES, shared, strict=True)]
    assert spans.side_labels.tolist() == [[c, r] for _, c, r in SHAPES]
    config = DPOConfig(per_device_train_batch_size=2, gradient_accumulation_steps=2)
    plan = Plan(spans, np.arange(len(pairs)), config, 0).executed(128)  # type: ignore[arg-type]
    steps = list(plan.steps())
    assert [len(step.rows) for step in steps[:2]] == [4, 2]
    for step in steps:
        assert sorted(row for batch in step.micro_batches for row in batch.rows.tolist()) == sorted(step.rows.tolist())
        assert all(int(spans.lengths_of(batch.rows).sum()) <= batch.tokens for batch in step.micro_batches)


def test_a_side_that_begins_the_other_keeps_a_token_of_its_own() -> None:
    ids_T = np.arange(5, 15, dtype=np.int32)
    sides = [Example(ids, ids, Place("pairs.jsonl", 1)) for ids in (ids_T, ids_T[:6])]
    spans = pair_spans(Pairs(Examples.from_list(sides, per_example=2)), ALONE)
    assert (spans.shared_tokens.tolist(), spans.lengths.tolist()) == ([5], [11])


def test_pairs_come_with_their_reference(pairs: Pairs) -> None:
    reference_PC = np.arange(12.0).reshape(6, 2)
    found = PairItems(pairs, pair_spans(pairs, ALONE), reference_PC).at(np.array([4, 0]))
    assert [pair.reference_C.tolist() for pair in found] == [[8.0, 9.0], [0.0, 1.0]]
    assert isinstance(found[0], Pair)
    assert len(found[0].chosen[0]) == 6
