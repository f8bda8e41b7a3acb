"""Liger's fused linear cross entropy in Triton's interpreter: `test_liger.py` runs this file in a process of its own."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.model.head import Head
from dynotune.model.head.logit_map import LogitMap
from dynotune.model.liger import head as liger_head
from dynotune.model.liger.head import LigerHead, why_not
from dynotune.model.packed import PackedBatch, pack
from dynotune.objectives.row_loss import RowLoss
from dynotune.objectives.sft import SFTObjective
from tests.model.liger import interpreter
from tests.model.lora.adapted import gap

interpreter.complete()

D, V = 16, 67
LOSSES: dict[str, dict[str, Any]] = {
    "nll": {},
    "smoothing": {"label_smoothing_factor": 0.1},
    "dft": {"loss_type": "dft"},
}
MAPS = {"plain": LogitMap(), "capped": LogitMap(cap=3.0), "scaled": LogitMap(scale=0.5, before=2.0)}


def batch(labelled: bool = True) -> PackedBatch:
    ids = np.arange(3, 12, dtype=np.int32)
    labels = np.where(ids % 3 > 0, ids, -100) if labelled else np.full_like(ids, -100)
    return pack([(ids, labels), (ids + 20, labels)], 24, torch.device("cpu"))


def linear(trained: bool, bias: bool = False) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(D, V, bias=bias).requires_grad_(trained)


def run(head: Head, module: nn.Linear, objective: SFTObjective, laid: PackedBatch, wants: bool = True) -> list[Tensor]:
    """Loss, hits, and gradients, for an incoming gradient that is not 1."""
    hidden_TD = torch.randn(24, D, generator=torch.Generator().manual_seed(1)).requires_grad_(wants)
    loss, sums = head(hidden_TD, laid, objective)
    wanted = [x for x in (hidden_TD, *module.parameters()) if x.requires_grad]
    return [loss.detach(), sums[0], *torch.autograd.grad(loss / 7, wanted)]


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(
    ("loss", "logits"), [*((loss, "plain") for loss in LOSSES), ("nll", "capped"), ("nll", "scaled")]
)
def test_loss_hits_and_gradients_are_those_of_our_head(loss: str, logits: str, trained: bool) -> None:
    objective = SFTObjective(SFTObjectiveConfig.model_validate(LOSSES[loss]))
    module = linear(trained, bias=trained and logits == "plain")
    right = run(Head(module, MAPS[logits], V), module, objective, batch())
    found = run(LigerHead(module, MAPS[logits], V), module, objective, batch())
    assert len(found) == len(right) >= 3
    assert all(gap(a, b) < 1e-5 for a, b in zip(found, right, strict=True))


def test_what_liger_does_not_form_is_not_made_up() -> None:
    objective = SFTObjective(SFTObjectiveConfig())
    head = LigerHead(linear(False), LogitMap(), V)
    with torch.no_grad():
        loss, sums = head(torch.randn(24, D), batch(), objective)
    assert loss.isfinite()
    assert torch.isnan(sums[1])
    assert "entropy" in head.describe()[0]


def test_without_a_label_token_there_is_a_gradient_of_zeros() -> None:
    objective = SFTObjective(SFTObjectiveConfig())
    module = linear(True)
    assert not any(x.any() for x in run(LigerHead(module, LogitMap(), V), module, objective, batch(labelled=False)))


def test_a_trained_head_above_frozen_layers_gets_its_gradient() -> None:
    """Liger's own function gives it none, and says nothing."""
    objective = SFTObjective(SFTObjectiveConfig())
    module = linear(True)
    hidden_TD = torch.randn(24, D)
    laid = batch()
    theirs, _ = liger_head.fused_loss(
        hidden_TD.index_select(0, laid.predictors_N), module.weight, laid.targets_N, RowLoss(), LogitMap()
    )
    assert torch.autograd.grad(theirs, module.weight, allow_unused=True) == (None,)
    found = run(LigerHead(module, LogitMap(), V), module, objective, laid, wants=False)
    right = run(Head(module, LogitMap(), V), module, objective, laid, wants=False)
    assert len(found) == 3
    assert gap(found[2], right[2]) < 1e-6


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liger_head, "TRIED", (6, 16, 53))


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(
    ("loss", "logits"),
    [(RowLoss(), "capped"), (RowLoss(smoothing=0.1), "scaled"), (RowLoss(by_probability=True), "plain")],
    ids=["nll", "smoothing", "dft"],
)
def test_it_is_tried_out(loss: RowLoss, logits: str, trained: bool, small: None) -> None:
    assert why_not(Head(linear(trained), MAPS[logits], V), loss, torch.float32) is None


def test_a_loss_that_liger_forms_in_low_precision_is_refused_there(small: None) -> None:
    """Its weights of `dft` are probabilities in the logits' precision."""
    head = Head(linear(False), LogitMap(), V)
    assert why_not(head, RowLoss(), torch.float16) is None
    assert "rounding is larger" in str(why_not(head, RowLoss(by_probability=True), torch.float16))


def test_one_that_is_wrong_is_refused(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(linear(True), LogitMap(), V)
    real = liger_head.fused_loss
    monkeypatch.setattr(liger_head, "fused_loss", lambda rows, *rest: real(rows * 1.001, *rest))
    assert "it computes something else" in str(why_not(head, RowLoss(), torch.float32))


def test_what_it_has_no_place_for_is_refused() -> None:
    assert "plain linear layer" in str(
        why_not(Head(nn.Sequential(linear(True)), LogitMap(), V), RowLoss(), torch.float32)
    )
    biased = Head(linear(True, bias=True), LogitMap(scale=2.0), V)
    assert "bias" in str(why_not(biased, RowLoss(), torch.float32))
    assert "float64" in str(why_not(Head(linear(True), LogitMap(), V), RowLoss(), torch.float64))
