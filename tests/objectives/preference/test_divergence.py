"""Promise: the constant that a divergence leaves open cancels in the margin; per token it does so for equal lengths only."""

import pytest
import torch

from dynotune.config.keys.preference import PreferenceConfig
from dynotune.objectives.preference import divergence
from dynotune.objectives.preference.pairs import Answers, Pairs


def answers(lengths: list[int]) -> Answers:
    reference_P, logps_P = torch.tensor([-4.0, -7.0]), torch.tensor([-3.0, -8.0])
    return Answers(logps_P, torch.tensor(lengths), reference_P)


def test_a_constant_cancels_in_the_margin_and_not_per_token(monkeypatch: pytest.MonkeyPatch) -> None:
    config = PreferenceConfig(f_divergence_type="forward_kl")
    pairs = Pairs(chosen=answers([4, 9]), rejected=answers([4, 3]))
    whole, per_token = divergence.margin(pairs, config), divergence.margin_per_token(pairs, config)
    score = divergence.score
    monkeypatch.setattr(divergence, "score", lambda *given: score(*given) + 3)
    torch.testing.assert_close(divergence.margin(pairs, config), whole)
    moved = divergence.margin_per_token(pairs, config) - per_token
    torch.testing.assert_close(moved, torch.tensor([0.0, 3 / 9 - 3 / 3]))
