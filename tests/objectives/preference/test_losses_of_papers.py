"""Promise: the losses that TRL's DPO lacks are their papers' formulas, written out here for one pair in plain float64."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dynotune.config.keys.preference import PreferenceConfig
from dynotune.objectives.preference.groups import token_shares
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.objectives.preference.pairs import Answers, Need, Pairs

CHOSEN, REJECTED = np.array([-4.5, -0.2, -80.0, -12.0]), np.array([-6.5, -0.1, -3.0, -12.5])
REFERENCE = np.array([-5.0, -0.4, -60.0, -12.0]), np.array([-6.0, -0.3, -9.0, -11.0])
LENGTHS = np.array([9, 1, 30, 6]), np.array([5, 2, 4, 6])


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def mean_nll() -> float:
    return float(-CHOSEN.sum() / LENGTHS[0].sum())


def dpo_norm(pair: int, beta: float, smoothing: float) -> float:
    ratios = (CHOSEN - REFERENCE[0]) / LENGTHS[0], (REJECTED - REFERENCE[1]) / LENGTHS[1]
    x = beta * (ratios[0][pair] - ratios[1][pair])
    return -(1 - smoothing) * math.log(sigma(x)) - smoothing * math.log(sigma(-x))


def simpo(pair: int, beta: float, gamma: float) -> float:
    return -math.log(sigma(beta / LENGTHS[0][pair] * CHOSEN[pair] - beta / LENGTHS[1][pair] * REJECTED[pair] - gamma))


def cpo(pair: int, beta: float, alpha: float) -> float:
    return -math.log(sigma(beta * CHOSEN[pair] - beta * REJECTED[pair])) + alpha * mean_nll()


def orpo(pair: int, weight: float) -> float:
    p, q = math.exp(CHOSEN[pair] / LENGTHS[0][pair]), math.exp(REJECTED[pair] / LENGTHS[1][pair])
    return mean_nll() - weight * math.log(sigma(math.log((p / (1 - p)) / (q / (1 - q)))))


CASES: dict[str, tuple[dict[str, Any], Callable[[int], float]]] = {
    "dpo_norm": ({"beta": 5.0}, lambda pair: dpo_norm(pair, 5.0, 0.0)),
    "dpo_norm, smoothed": ({"beta": 5.0, "label_smoothing": 0.1}, lambda pair: dpo_norm(pair, 5.0, 0.1)),
    "simpo": ({"beta": 2.0, "simpo_gamma": 1.0}, lambda pair: simpo(pair, 2.0, 1.0)),
    "cpo": ({"beta": 0.1}, lambda pair: cpo(pair, 0.1, 1.0)),
    "cpo, no likelihood": ({"beta": 0.1, "cpo_alpha": 0.0}, lambda pair: cpo(pair, 0.1, 0.0)),
    "orpo": ({"beta": 0.1}, lambda pair: orpo(pair, 0.1)),
}


def pairs(needs: frozenset[Need]) -> Pairs:
    """With what the losses ask for, and nothing else."""
    sides = [
        Answers(
            torch.tensor(logps, requires_grad=True),
            torch.tensor(lengths),
            torch.tensor(reference) if Need.REFERENCE in needs else None,
        )
        for logps, lengths, reference in zip((CHOSEN, REJECTED), LENGTHS, REFERENCE, strict=True)
    ]
    shares = torch.tensor(token_shares(LENGTHS[0], 4)) if Need.TOKEN_SHARES in needs else None
    return Pairs(*sides, token_shares_P=shares)


@pytest.mark.parametrize("case", CASES)
def test_formula(case: str) -> None:
    settings, formula = CASES[case]
    loss = case.partition(",")[0]
    objective = PreferenceObjective(PreferenceConfig(loss_type=[loss], **settings), predictions=False)
    given = pairs(objective.needs)
    mean = objective.losses(given).mean()
    expected = np.mean([formula(pair) for pair in range(4)])
    assert mean.item() == pytest.approx(expected, rel=1e-9)
    assert torch.autograd.grad(mean, given.chosen.logps_P)[0].isfinite().all()
    # Negative controls: a wrong sign, another beta.
    exchanged = Pairs(given.rejected, given.chosen, token_shares_P=given.token_shares_P)
    assert objective.losses(exchanged).mean().item() != pytest.approx(expected, rel=1e-3)
    other = PreferenceObjective(PreferenceConfig(loss_type=[loss], **{**settings, "beta": 1.5}), predictions=False)
    assert other.losses(given).mean().item() != pytest.approx(expected, rel=1e-3)


def test_only_losses_against_a_reference_ask_for_one() -> None:
    needs = {case: PreferenceObjective(PreferenceConfig(loss_type=[case.partition(",")[0]])).needs for case in CASES}
    assert {case for case, of in needs.items() if Need.REFERENCE in of} == {"dpo_norm", "dpo_norm, smoothed"}
    assert PreferenceObjective(PreferenceConfig(loss_type=["cpo"], cpo_alpha=0.0)).needs == frozenset()


def test_rewards_without_a_reference() -> None:
    """`beta` times log-probabilities, per token where the loss is per token."""
    for loss, expected in (("cpo", CHOSEN), ("simpo", CHOSEN / LENGTHS[0])):
        objective = PreferenceObjective(PreferenceConfig(loss_type=[loss], beta=0.5), predictions=False)
        _, sums = objective(pairs(objective.needs))
        assert sums[0].item() == pytest.approx(0.5 * expected.sum())
