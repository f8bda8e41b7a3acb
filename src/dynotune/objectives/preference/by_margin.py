"""Losses of the margin: how much more the chosen answer gained over the reference than the rejected one.

Each takes the pairs of a micro-batch and the keys of its run, and gives a loss for each pair [P].
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from dynotune.config.keys.preference import PreferenceConfig
from dynotune.objectives.preference.divergence import margin, margin_per_token
from dynotune.objectives.preference.pairs import Pairs


def smoothed(logits_P: Tensor, smoothing: float) -> Tensor:
    """-log sigmoid, with the share `smoothing` of it for the opposite preference."""
    loss_P = -F.logsigmoid(logits_P)
    return loss_P if not smoothing else (1 - smoothing) * loss_P - smoothing * F.logsigmoid(-logits_P)


def sigmoid(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """DPO (Rafailov et al., arXiv 2305.18290, eq. 7)."""
    return -F.logsigmoid(config.beta * margin(pairs, config))


def hinge(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """SLiC's hinge, with a reference (Zhao et al., arXiv 2305.10425; Liu et al., arXiv 2309.06657)."""
    return torch.relu(1 - config.beta * margin(pairs, config))


def ipo(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """IPO (Azar et al., arXiv 2310.12036, eq. 17), with scores per token, as its authors ran it; `beta` is tau."""
    return (margin_per_token(pairs, config) - 1 / (2 * config.beta)) ** 2


def exo_pair(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """EXO (Ji et al., arXiv 2402.00856, eq. 16): reverse KL from the policy's preference to the smoothed label."""
    logits_P = config.beta * margin(pairs, config)
    for_P, against_P = F.logsigmoid(logits_P), F.logsigmoid(-logits_P)
    label, flipped = math.log1p(-config.label_smoothing), math.log(config.label_smoothing)
    return for_P.exp() * (for_P - label) + against_P.exp() * (against_P - flipped)


def robust(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """Robust DPO (Chowdhury et al., arXiv 2403.00409): unbiased where `label_smoothing` of labels are flipped."""
    logits_P, flipped = config.beta * margin(pairs, config), config.label_smoothing
    return (flipped * F.logsigmoid(-logits_P) - (1 - flipped) * F.logsigmoid(logits_P)) / (1 - 2 * flipped)


def discopop(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """DiscoPOP (Lu et al., arXiv 2406.08414, eq. 5): logistic below a margin of 0, exponential above, blended."""
    logits_P = config.beta * margin(pairs, config)
    blend_P = logits_P / config.discopop_tau
    # As one exponential: far below 0 the two factors are infinity and 0.
    exponential_P = (F.logsigmoid(blend_P) - logits_P).exp()
    return -F.logsigmoid(logits_P) * torch.sigmoid(-blend_P) + exponential_P


def sigmoid_norm(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """DPO of scores per token (Lambert et al., Tulu 3, arXiv 2411.15124)."""
    return -F.logsigmoid(config.beta * margin_per_token(pairs, config))


def dpo_norm(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """open-instruct's `dpo_norm` (arXiv 2411.15124): `sigmoid_norm` that heeds `label_smoothing`."""
    return smoothed(config.beta * margin_per_token(pairs, config), config.label_smoothing)
