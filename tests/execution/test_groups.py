"""Promise: losses over batches of pairs are those of the same batches in any layout, on any ranks, in evaluation too."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dynotune.config.dpo import DPOConfig
from dynotune.data.pairs import Pairs
from dynotune.execution.pairs import PairItems
from dynotune.objectives.preference import pairs as seen
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.objectives.preference.pairs import Need
from dynotune.parallel.ranks import Ranks
from dynotune.plan.ladder import Ladder
from dynotune.plan.layout import MicroBatch
from dynotune.plan.pairs import groups_of, pair_spans
from dynotune.plan.plan import Plan
from dynotune.train.evaluate import Evaluator, HeldOut
from tests.execution.test_pairs import CPU, logps, pairs, paths  # noqa: F401  (fixtures)
from tests.tiny import tiny_model

LOSSES: dict[str, dict[str, Any]] = {
    "aot": {"loss_type": ["aot"], "label_smoothing": 0.1},
    "aot_unpaired": {"loss_type": ["aot_unpaired"]},
    "sft": {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.5]},
    "orpo": {"loss_type": ["orpo"]},
    "cpo and aot": {"loss_type": ["cpo", "aot"]},
}
LAYOUTS = {"one micro-batch": (512, 1), "as small as groups allow": (64, 1), "two ranks": (64, 2), "three": (512, 3)}
"""Tokens of a micro-batch, ranks."""


def config_of(**keys: Any) -> DPOConfig:
    batches = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "per_device_eval_batch_size": 2}
    return DPOConfig(packed_execution="on", beta=0.3, **batches, **keys)


def items_of(pairs: Pairs, config: DPOConfig, held_out: bool = False) -> PairItems:  # noqa: F811
    reference_PC = -np.random.default_rng(1).uniform(10, 60, (len(pairs), 2))
    return PairItems(pairs, pair_spans(pairs, groups_of(config, held_out)), reference_PC)


def by_batches(model: Any, items: PairItems, config: DPOConfig, rows: np.ndarray, size: int) -> Tensor:
    """The loss of a step of these pairs: each side in a pass of its own, each batch of `size` by itself."""
    objective, total = PreferenceObjective(config, predictions=False), torch.zeros(())
    for first in range(0, len(rows), size):
        batch = items.at(rows[first : first + size])
        sides = []
        for side in (0, 1):
            found = torch.stack([logps(model, *pair[side]) for pair in batch])
            lengths = torch.tensor([int((pair[side][1][1:] != -100).sum()) for pair in batch])
            reference = torch.tensor([pair.reference_C[side] for pair in batch], dtype=torch.float32)
            sides.append(seen.Answers(found, lengths, reference))
        share = torch.full((len(batch),), len(batch) / int(sides[0].lengths_P.sum()))
        total = total + objective.losses(seen.Pairs(*sides, groups=(len(batch),), token_shares_P=share)).sum()
    return total / len(rows)


def gradient_of(model: Any) -> Tensor:
    return torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_has_the_loss_of_its_batches_in_any_layout(loss: str, pairs: Pairs, paths: Any) -> None:  # noqa: F811
    model = tiny_model().train()
    keys = LOSSES[loss]
    config = config_of(**keys)
    items, path = items_of(pairs, config), paths(model, beta=0.3, **keys)
    plan = Plan(items.spans, np.arange(len(pairs)), config, 3)
    model.zero_grad()
    right = by_batches(model, items, config, plan.step(1).rows, 4)
    right.backward()
    gradient, metrics = gradient_of(model), []
    others = [float(by_batches(model, items, config, plan.step(1).rows, size).detach()) for size in (1, 3, 6)]
    assert max(abs(other - float(right.detach())) for other in others) > 1e-4  # negative control: the batch matters
    for tokens, world in LAYOUTS.values():
        model.zero_grad()
        step = Plan(items.spans, plan.rows, config, 3, micro_batch_tokens=tokens, world=world).step(1)
        counts = path.objective.counts(items.spans, step.rows)
        total, sums = torch.zeros(()), torch.zeros(len(path.objective.sums))
        for batch in step.all_micro_batches:
            host = path.host_batch(items.of(batch), batch.tokens, pin=False)
            with path.engaged():
                found, more = path.loss(host.unpack(host.buffer))
                (found / counts[0]).backward()
            total, sums = total + found.detach(), sums + more
        assert float(total / counts[0]) == pytest.approx(float(right.detach()), rel=1e-5)
        assert float((gradient_of(model) - gradient).norm() / gradient.norm()) < 1e-4
        metrics.append([float(s) / n for s, n in zip(sums, counts[1:], strict=True)])
    for other in metrics[1:]:
        assert other == pytest.approx(metrics[0], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("loss", ["aot", "sft"])
def test_held_out_pairs_have_batches_of_their_own_in_any_micro_batches(loss: str, pairs: Pairs, paths: Any) -> None:  # noqa: F811
    model = tiny_model().eval()
    keys = LOSSES[loss]
    config = config_of(**keys)
    items, path = items_of(pairs, config, held_out=True), paths(model, beta=0.3, **keys)
    rows = np.array([4, 0, 1, 5, 3, 2])
    held = {"eval": HeldOut(items, items.spans, rows)}
    evaluator = Evaluator(held, path, path.objective, None, CPU, 0, 0, Ranks())  # type: ignore[arg-type]
    with torch.no_grad():
        right, other = (float(by_batches(model, items, config, rows, size)) for size in (2, 4))
    assert abs(right - other) > 1e-4  # negative control
    for ladder in (Ladder([64]), Ladder([128, 192])):
        found = evaluator(model, nullcontext(), ladder)
        assert found["eval_loss"] == pytest.approx(right, rel=1e-5)


def test_a_group_in_two_micro_batches_is_never_run(pairs: Pairs) -> None:  # noqa: F811
    items = items_of(pairs, config_of(loss_type=["aot"]))
    step = np.array([3, 1, 0, 2, 5])  # a batch of four, and one of the pair that is left
    assert [pair.group for pair in items.of(MicroBatch(step, 64, step))] == [0, 0, 0, 0, 1]
    assert [pair.group for pair in items.of(MicroBatch(step[4:], 64, step))] == [1]
    with pytest.raises(AssertionError, match="two micro-batches"):
        items.of(MicroBatch(np.array([3, 0]), 64, step))


def test_what_is_whole_is_what_the_losses_sort() -> None:
    for keys in LOSSES.values():
        config = config_of(**keys)
        assert groups_of(config).whole is (Need.WHOLE_GROUPS in PreferenceObjective(config).needs)
    assert (groups_of(config).size, groups_of(config, held_out=True).size) == (4, 2)
