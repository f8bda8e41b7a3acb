"""Promise: `precompute_ref_log_probs: false` gives what the reference computed once gives, step by step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dynotune.execution.feed import Feed
from tests.reference.pairs import many
from tests.tiny import tiny_model
from tests.train.preference.beginnings import Beginning, adapted, beginning, one_by_one

PAIRS = many(12, seed=5, longest=9)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "reference"


def trained(run: Beginning, rate: float = 2.0) -> list[list[float]]:
    """Loss and sums of each step, of plain gradient descent."""
    model, path, plan = run.start.model, run.path, run.start.execution.plan
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    found = []
    for step in plan.steps():
        model.zero_grad()
        count = run.objective.counts(plan.spans, step.rows)[0]
        total = torch.zeros(1 + len(run.objective.sums))
        for batch in Feed(run.items, path, run.start.device).batches(step.micro_batches):
            with path.engaged():
                loss, sums = path.loss(batch)
                (loss / count).backward()
            total += torch.cat([loss.detach()[None], sums])
        with torch.no_grad():
            for parameter in trained:
                parameter -= rate * parameter.grad
        found.append((total / count).tolist())
    return found


def with_norms(model: Any) -> Any:
    """As LongLoRA trains."""
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.requires_grad_(True)
    return model


@pytest.mark.parametrize("keys", [{}, {"ld_alpha": 0.3}, {"loss_type": ["ipo"]}])
def test_steps_are_the_same_both_ways(keys: dict[str, Any]) -> None:
    ways = {}
    for once in (True, False):
        with beginning(adapted(lora_dropout=0.0), PAIRS, precompute_ref_log_probs=once, beta=0.5, **keys) as run:
            run.bring()
            ways[once] = trained(run)
    assert np.array(ways[False]) == pytest.approx(np.array(ways[True]), rel=1e-5, abs=1e-6)
    losses = [step[0] for step in ways[False]]
    assert abs(losses[-1] - losses[0]) > 1e-2  # negative control: the policy has moved away from its reference


def test_computed_in_each_step_nothing_is_kept_and_nothing_of_kernels_is_told(cache: Path) -> None:
    with beginning(adapted(), PAIRS, held_out={"eval": many(3)}, precompute_ref_log_probs=False) as run:
        said = run.bring()
        trained(run)
        assert run.items.reference_PC.shape == (12, 0)
        assert run.path.notes() == []
    assert "reference: computed in every step, as `precompute_ref_log_probs: false` asks" in said
    assert said[-1].startswith("step 0: log-ratios of 4 pairs are within")
    assert not list(cache.glob("*/*.segment"))


@pytest.mark.parametrize(
    ("make", "more", "why"),
    [
        (tiny_model, {}, "without an adapter to switch off, a step would need a second model in memory"),
        (lambda: adapted(init_lora_weights="pissa"), {}, "the adapter as it is now is a part of it"),
        (lambda: adapted(init_lora_weights=False), {"continued_adapter": True}, "the adapter as it is now is a part"),
        (lambda: with_norms(adapted()), {}, "training changes parameters under the adapter, too (base_model.model."),
    ],
)
def test_what_cannot_be_computed_in_a_step_is_computed_once_and_said(make: Any, more: dict[str, Any], why: str) -> None:
    model = make()
    with beginning(model, PAIRS, precompute_ref_log_probs=False, start=more) as run:
        said = run.bring()
        found = run.items.reference_PC
    assert any(line.startswith("note: `precompute_ref_log_probs: false`") and why in line for line in said)
    assert said[-1].startswith("step 0: log-ratios of 4 pairs are within")
    assert np.abs(found / one_by_one(model, PAIRS, range(12), adapter=True) - 1).max() < 1e-6
