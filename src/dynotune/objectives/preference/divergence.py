"""The reward that a divergence from the reference stands for (f-DPO, Wang et al., arXiv 2309.16240).

Legend of shapes: P pairs.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from dynotune.config.keys.preference import PreferenceConfig
from dynotune.objectives.preference.pairs import Answers, Pairs

_LARGEST_EXPONENT = {torch.float64: 700.0}
_LARGEST_EXPONENT_OF_FLOAT32 = 80.0
"""exp of more is infinite, and the difference of two infinities is no number. Such a reward gets no gradient."""


def score(answers: Answers, config: PreferenceConfig) -> Tensor:
    """f'(u) at u = policy / reference [P], with TRL's constant. `margin` cancels it; `margin_per_token` does not, unless
    both answers are of one length."""
    ratios_P = answers.ratios
    match config.f_divergence_type:
        case "reverse_kl":  # f'(u) = log u
            return ratios_P
        case "forward_kl":  # f'(u) = 1 - 1/u
            return 1 - _exp(-ratios_P)
        case "js_divergence":  # f'(u) = log(2u / (1 + u))
            return math.log(2) + F.logsigmoid(ratios_P)
        case "alpha_divergence":  # f'(u) = (u^(a - 1) - 1) / (a - 1), which is log u at a = 1
            power = config.f_alpha_divergence_coef - 1
            return ratios_P if abs(power) < 1e-6 else (_exp(power * ratios_P) - 1) / power


def margin(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """Score of the chosen less score of the rejected answer [P]."""
    return score(pairs.chosen, config) - score(pairs.rejected, config)


def margin_per_token(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """The same of scores divided by their answer's length [P]."""
    chosen, rejected = pairs.chosen, pairs.rejected
    return score(chosen, config) / chosen.counts - score(rejected, config) / rejected.counts


def _exp(x_P: Tensor) -> Tensor:
    return x_P.clamp(max=_LARGEST_EXPONENT.get(x_P.dtype, _LARGEST_EXPONENT_OF_FLOAT32)).exp()
