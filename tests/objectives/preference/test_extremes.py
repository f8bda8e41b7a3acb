"""Promise: however far an answer has moved, its loss and gradient are finite numbers, for every loss."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynotune.config.checking.preference import OF_THE_MARGIN
from dynotune.config.keys.preference import PREFERENCE_LOSSES, PreferenceConfig
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.objectives.preference.pairs import Answers, Pairs

LOGPS = st.floats(-1e4, 0, width=32)


def answers(logps: float, reference: float, length: int) -> Answers:
    return Answers(
        torch.tensor([logps], requires_grad=True),
        torch.tensor([length]),
        torch.tensor([reference], dtype=torch.float32),
    )


def loss_and_gradients(settings: dict[str, Any], chosen: Answers, rejected: Answers) -> torch.Tensor:
    given_pairs = Pairs(chosen, rejected, groups=(1,), token_shares_P=1 / chosen.counts)
    loss = PreferenceObjective(PreferenceConfig(**settings)).losses(given_pairs).sum()
    gradients = torch.autograd.grad(loss, [chosen.logps_P, rejected.logps_P], allow_unused=True)
    return torch.stack([loss.detach(), *(g.sum() for g in gradients if g is not None)])


@pytest.mark.parametrize("loss", PREFERENCE_LOSSES)
@given(logps=st.tuples(LOGPS, LOGPS, LOGPS, LOGPS), lengths=st.tuples(st.integers(1, 5000), st.integers(1, 5000)))
def test_finite_at_any_margin(loss: str, logps: tuple[float, ...], lengths: tuple[int, int]) -> None:
    settings = {"loss_type": [loss], "label_smoothing": 0.1}
    chosen, rejected = answers(logps[0], logps[1], lengths[0]), answers(logps[2], logps[3], lengths[1])
    assert loss_and_gradients(settings, chosen, rejected).isfinite().all()


@pytest.mark.parametrize("divergence", ["forward_kl", "js_divergence", "alpha_divergence"])
@pytest.mark.parametrize("loss", sorted(OF_THE_MARGIN - {"ipo"}))
@given(logps=st.tuples(LOGPS, LOGPS, LOGPS, LOGPS))
def test_finite_under_any_divergence(loss: str, divergence: str, logps: tuple[float, ...]) -> None:
    """All but `ipo`, which squares what may be 1e34."""
    settings = {"loss_type": [loss], "label_smoothing": 0.1, "f_divergence_type": divergence}
    assert loss_and_gradients(settings, answers(*logps[:2], 9), answers(*logps[2:], 7)).isfinite().all()


def test_a_certain_answer_has_finite_odds() -> None:
    """ORPO's odds are infinite at a probability of 1."""
    found = loss_and_gradients({"loss_type": ["orpo"]}, answers(0.0, 0.0, 3), answers(0.0, 0.0, 3))
    assert found.isfinite().all()
    assert float(found[0]) == pytest.approx(0.1 * 0.6931472, rel=1e-5)


def test_discopop_far_below_its_margin() -> None:
    """The exponential part fades faster than it grows: what is left is the logistic part, the margin itself."""
    margin = torch.tensor(-900.0)
    assert (torch.exp(-margin) * torch.sigmoid(margin / 0.05)).isnan()  # as TRL writes it: infinity x 0
    found = loss_and_gradients({"loss_type": ["discopop"]}, answers(-9000.0, 0.0, 3), answers(0.0, 0.0, 3))
    assert found.tolist() == pytest.approx([900.0, -0.1, 0.1])


def test_two_infinities_are_no_number_without_the_limit() -> None:
    """Negative control: TRL's forward_kl takes the difference of what exp makes of both sides."""
    ratios = torch.tensor([-200.0, -300.0])
    chosen, rejected = 1 - torch.exp(-ratios)
    assert (chosen - rejected).isnan()
