"""Promise: the explicit loss and gradient of a row are those of the objective under autograd."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.data.examples import IGNORE
from dynotune.model.head import rows
from dynotune.model.head.logit_map import LogitMap
from dynotune.model.head.rows import rows_in_torch, statistics
from dynotune.objectives.row_loss import ROW_SUMS, RowLoss
from dynotune.objectives.sft import SFTObjective

VARIANTS = st.one_of(
    st.just({}),
    st.just({"loss_type": "dft"}),
    st.floats(0.01, 0.95).map(lambda e: {"label_smoothing_factor": e}),
)
MAPS = st.builds(LogitMap, scale=st.sampled_from([1.0, 0.3, 4.0]), cap=st.sampled_from([None, 2.0, 30.0]))


def explicit(z_NV: Tensor, targets_N: Tensor, loss: RowLoss, logits: LogitMap) -> tuple[Tensor, Tensor]:
    """What a row function writes, and the gradient."""
    gradient_NV, out_3N = z_NV.clone(), statistics(len(z_NV), z_NV)
    rows_in_torch(gradient_NV, targets_N, loss, logits, True, out_3N)
    return out_3N, gradient_NV


@given(
    st.integers(2, 9), st.integers(1, 40), st.sampled_from([0.01, 1.0, 20.0]), VARIANTS, MAPS, st.integers(0, 10_000)
)
@settings(max_examples=150, deadline=None)
def test_rows_are_the_objective_in_float64(
    tokens: int, vocabulary: int, size: float, variant: dict[str, Any], logits: LogitMap, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    z_TV = (size * torch.randn(tokens, vocabulary, generator=random, dtype=torch.float64)).requires_grad_()
    labels_T = torch.randint(0, vocabulary, (tokens,), generator=random)
    labels_T[torch.rand(tokens, generator=random) < 0.4] = IGNORE
    objective = SFTObjective(SFTObjectiveConfig.model_validate(variant))
    loss, sums = objective(logits(z_TV), labels_T)
    (expected_TV,) = torch.autograd.grad(loss, z_TV)

    predictors_N = (labels_T[1:] != IGNORE).nonzero()[:, 0]
    out_3N, gradient_NV = explicit(z_TV.detach()[predictors_N], labels_T[predictors_N + 1], objective.row_loss, logits)
    torch.testing.assert_close(out_3N[0].sum(), loss.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(out_3N[1:].sum(1), sums, rtol=1e-10, atol=1e-10)
    gradient_TV = torch.zeros_like(expected_TV).index_copy(0, predictors_N, gradient_NV)
    torch.testing.assert_close(gradient_TV, expected_TV, rtol=1e-8, atol=1e-10)


def test_the_sums_are_the_objectives() -> None:
    assert SFTObjective(SFTObjectiveConfig()).sums == ROW_SUMS


def test_a_wrong_gradient_would_show() -> None:
    """Negative control: the constant weight of `dft` must not get a gradient, and smoothing is over the vocabulary."""
    z_NV = torch.randn(3, 11, dtype=torch.float64, requires_grad=True)
    targets_N = torch.tensor([1, 5, 10])
    logps_NV = z_NV.log_softmax(-1)
    own_N = logps_NV.gather(1, targets_N[:, None])[:, 0]
    for loss, wrong in (
        (RowLoss(by_probability=True), -(own_N * own_N.exp()).sum()),
        (RowLoss(smoothing=0.2), -(0.8 * own_N + 0.2 * logps_NV.sum(-1)).sum()),
    ):
        (unlike,) = torch.autograd.grad(wrong, z_NV, retain_graph=True)
        assert (explicit(z_NV.detach(), targets_N, loss, LogitMap())[1] - unlike).abs().max() > 0.01


@pytest.mark.parametrize("loss", [RowLoss(), RowLoss(by_probability=True)])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16, torch.float16])
def test_masked_and_extreme_logits(loss: RowLoss, precision: torch.dtype) -> None:
    most = torch.finfo(precision).max
    z_NV = torch.tensor(
        [
            [0.0, -torch.inf, 1.0, -torch.inf],
            [most, 0.0, -most, 1.0],
            [-most, -most, -most, -most],
            [-torch.inf, 2.0, 2.0, 0.0],
        ]
    ).to(precision)
    out_3N, gradient_NV = explicit(z_NV, torch.tensor([2, 0, 3, 2]), loss, LogitMap())
    assert out_3N.isfinite().all()
    assert gradient_NV.isfinite().all()
    assert not gradient_NV[0, [1, 3]].any()  # probability 0
    torch.testing.assert_close(out_3N[2, 2], torch.tensor(4.0).log())
    assert out_3N[1].tolist() == [1, 1, 0, 0]  # ties: the first wins


def test_nan_comes_out_as_nan() -> None:
    z_NV = torch.tensor([[0.0, torch.nan, 1.0], [0.0, 1.0, 2.0]])
    out_3N, gradient_NV = explicit(z_NV, torch.tensor([0, 0]), RowLoss(), LogitMap())
    assert out_3N[[0, 2], 0].isnan().all()
    assert gradient_NV[0].isnan().all()
    assert out_3N[:, 1].isfinite().all()  # the other row is untouched


def test_rows_go_through_in_blocks_and_no_rows_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    z_NV, targets_N = torch.randn(13, 50), torch.randint(0, 50, (13,))
    whole = explicit(z_NV, targets_N, RowLoss(0.1), LogitMap())
    monkeypatch.setattr(rows, "BLOCK_BYTES", 4 * 200)  # 4 rows
    for got, right in zip(explicit(z_NV, targets_N, RowLoss(0.1), LogitMap()), whole, strict=True):
        assert torch.equal(got, right)
    assert explicit(z_NV[:0], targets_N[:0], RowLoss(), LogitMap())[0].shape == (3, 0)
