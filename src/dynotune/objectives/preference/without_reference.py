"""Losses that need no reference.

Each takes the pairs of a micro-batch and the keys of its run, and gives a loss for each pair [P].
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from dynotune.config.keys.preference import PreferenceConfig
from dynotune.objectives.preference.by_margin import smoothed
from dynotune.objectives.preference.pairs import Pairs

_CERTAIN = -1e-7
"""Nats per token. At 0 the odds are infinite, and the gradient of their logarithm is no number."""


def likelihood(pairs: Pairs) -> Tensor:
    """Negative log-likelihood of the chosen answers [P], so that its mean over a group's pairs is the mean over the
    group's chosen label tokens: long answers count for more than short ones. `ld_alpha` does not touch it."""
    assert pairs.token_shares_P is not None, "this loss needs the label tokens of its group"
    whole_P = pairs.chosen.unweighted_P
    return -(pairs.chosen.logps_P if whole_P is None else whole_P) * pairs.token_shares_P


def sft(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """Negative log-likelihood of the chosen answers: the anchor of RPO (arXiv 2404.19733) and MPO (arXiv 2411.10442).

    A mean over the chosen label tokens of a group, as in TRL.
    """
    return likelihood(pairs)


def simpo(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """SimPO (Meng et al., arXiv 2405.14734): log-probabilities per token, and a margin `simpo_gamma`."""
    chosen_P = pairs.chosen.logps_P / pairs.chosen.counts
    rejected_P = pairs.rejected.logps_P / pairs.rejected.counts
    return smoothed(config.beta * (chosen_P - rejected_P) - config.simpo_gamma, config.label_smoothing)


def cpo(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """CPO (Xu et al., arXiv 2401.08417): DPO with a uniform reference, and `cpo_alpha` times `sft`."""
    logits_P = config.beta * (pairs.chosen.logps_P - pairs.rejected.logps_P)
    preference_P = smoothed(logits_P, config.label_smoothing)
    return preference_P + config.cpo_alpha * likelihood(pairs) if config.cpo_alpha else preference_P


def orpo(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """ORPO (Hong et al., arXiv 2403.07691): `sft`, and `beta` times the log of the odds ratio."""
    odds_P = _log_odds(pairs.chosen.logps_P / pairs.chosen.counts)
    against_P = _log_odds(pairs.rejected.logps_P / pairs.rejected.counts)
    return likelihood(pairs) - config.beta * F.logsigmoid(odds_P - against_P)


def _log_odds(logps_P: Tensor) -> Tensor:
    """log(p / (1 - p)) from log p. Below log 1/2 by log1p, above by expm1: each keeps the digits that the other loses."""
    logps_P = logps_P.clamp(max=_CERTAIN)
    likely_P = logps_P > -math.log(2)
    # Both branches of `where` are differentiated: each gets arguments that it can take.
    rest_P = torch.where(
        likely_P,
        (-torch.expm1(logps_P.where(likely_P, -math.log(2)))).log(),
        torch.log1p(-logps_P.where(~likely_P, -math.log(2)).exp()),
    )
    return logps_P - rest_P
