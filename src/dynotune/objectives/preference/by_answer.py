"""Losses that judge each answer against the reference by itself, not only against the other one.

Each takes the pairs of a micro-batch and the keys of its run, and gives a loss for each pair [P].
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from dynotune.config.keys.preference import PreferenceConfig
from dynotune.objectives.preference.pairs import Pairs


def _rewards(pairs: Pairs, config: PreferenceConfig) -> tuple[Tensor, Tensor]:
    return config.beta * pairs.chosen.ratios, config.beta * pairs.rejected.ratios


def nca_pair(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """NCA (Chen et al., arXiv 2402.05369, with two answers): holds the chosen answer's likelihood up."""
    chosen_P, rejected_P = _rewards(pairs, config)
    return -F.logsigmoid(chosen_P) - 0.5 * F.logsigmoid(-chosen_P) - 0.5 * F.logsigmoid(-rejected_P)


def bco_pair(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """BCO of pairs (Jung et al., arXiv 2404.04656), without a shift of the reward and so without a state."""
    chosen_P, rejected_P = _rewards(pairs, config)
    return -F.logsigmoid(chosen_P) - F.logsigmoid(-rejected_P)


def sppo_hard(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """SPPO (Wu et al., arXiv 2405.00675, eq. 4.7) with probabilities of winning of 1 and 0."""
    target = 0.5 / config.beta
    return (pairs.chosen.ratios - target) ** 2 + (pairs.rejected.ratios + target) ** 2


def apo_zero(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """APO-zero (D'Oosterlinck et al., arXiv 2408.06266, eq. 7): the chosen answer up, the rejected one down."""
    chosen_P, rejected_P = _rewards(pairs, config)
    return torch.sigmoid(-chosen_P) + torch.sigmoid(rejected_P)


def apo_down(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """APO-down (D'Oosterlinck et al., arXiv 2408.06266, eq. 8): both down, the rejected answer more."""
    chosen_P, rejected_P = _rewards(pairs, config)
    return torch.sigmoid(chosen_P) + torch.sigmoid(rejected_P - chosen_P)
