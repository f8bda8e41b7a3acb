"""Alignment by optimal transport (Melnyk et al., arXiv 2406.05882): sorted, so that equal ranks of a group meet.

What a loss gives in place p belongs to the p-th smallest of its group, not to pair p; only sums over groups have a
meaning. A group is the same pairs however a step is executed, so the losses are, too.
"""

import torch
from torch import Tensor

from dynotune.config.keys.preference import PreferenceConfig
from dynotune.objectives.preference.by_margin import smoothed
from dynotune.objectives.preference.pairs import Pairs


def _sorted(values_P: Tensor, pairs: Pairs) -> Tensor:
    """Ascending within each group."""
    assert pairs.groups is not None, "this loss sorts, and needs whole groups"
    if len(pairs.groups) <= 1:
        return values_P.sort().values
    return torch.cat([group.sort().values for group in values_P.split(pairs.groups)])


def aot(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """AOT, paired: the policy's margins over the reference's, rank by rank (arXiv 2406.05882)."""
    assert pairs.chosen.reference_P is not None, "this loss needs the reference"
    assert pairs.rejected.reference_P is not None, "this loss needs the reference"
    policy_P = _sorted(pairs.chosen.logps_P - pairs.rejected.logps_P, pairs)
    reference_P = _sorted(pairs.chosen.reference_P - pairs.rejected.reference_P, pairs)
    return smoothed(config.beta * (policy_P - reference_P), config.label_smoothing)


def aot_unpaired(pairs: Pairs, config: PreferenceConfig) -> Tensor:
    """AOT, unpaired: the chosen answers' rewards over the rejected ones', rank by rank."""
    chosen_P, rejected_P = _sorted(pairs.chosen.ratios, pairs), _sorted(pairs.rejected.ratios, pairs)
    return smoothed(config.beta * (chosen_P - rejected_P), config.label_smoothing)
