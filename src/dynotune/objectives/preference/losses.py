"""The table of preference losses: name, function, and what each needs. The checks of a configuration import no
PyTorch, so they have sets of their own (`config.checking.preference`), and a test holds them against this table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from dynotune.config.keys.preference import PreferenceConfig
from dynotune.objectives.preference import by_answer, by_margin, by_rank, without_reference
from dynotune.objectives.preference.pairs import Need, Pairs

LossFunction = Callable[[Pairs, PreferenceConfig], Tensor]
"""The loss of each pair [P] of a micro-batch. A mean over the pairs of a step is what the step minimises."""


@dataclass(frozen=True)
class Loss:
    """One entry of the table."""

    function: LossFunction
    needs: frozenset[Need] = frozenset({Need.REFERENCE})


_REFERENCE_FREE = frozenset[Need]()
_LIKELIHOOD = frozenset({Need.TOKEN_SHARES})
_RANKED = frozenset({Need.REFERENCE, Need.WHOLE_GROUPS})

LOSSES: Mapping[str, Loss] = {
    "sigmoid": Loss(by_margin.sigmoid),
    "hinge": Loss(by_margin.hinge),
    "ipo": Loss(by_margin.ipo),
    "exo_pair": Loss(by_margin.exo_pair),
    "nca_pair": Loss(by_answer.nca_pair),
    "robust": Loss(by_margin.robust),
    "bco_pair": Loss(by_answer.bco_pair),
    "sppo_hard": Loss(by_answer.sppo_hard),
    "aot": Loss(by_rank.aot, _RANKED),
    "aot_unpaired": Loss(by_rank.aot_unpaired, _RANKED),
    "apo_zero": Loss(by_answer.apo_zero),
    "apo_down": Loss(by_answer.apo_down),
    "discopop": Loss(by_margin.discopop),
    "sft": Loss(without_reference.sft, _LIKELIHOOD),
    "sigmoid_norm": Loss(by_margin.sigmoid_norm),
    "dpo_norm": Loss(by_margin.dpo_norm),
    "simpo": Loss(without_reference.simpo, _REFERENCE_FREE),
    "orpo": Loss(without_reference.orpo, _LIKELIHOOD),
    "cpo": Loss(without_reference.cpo, _LIKELIHOOD),
}


def needs_of(config: PreferenceConfig) -> frozenset[Need]:
    """What the losses of a run need, so that nothing else is computed. `sft` alone reads no reference, but TRL logs rewards
    against one beside it, and so do we."""
    needs = frozenset[Need]().union(*(LOSSES[name].needs for name in config.loss_type))
    if set(config.loss_type) == {"sft"}:
        needs |= {Need.REFERENCE}
    if config.loss_type == ["cpo"] and not config.cpo_alpha:
        needs -= {Need.TOKEN_SHARES}
    if config.ld_alpha is not None:
        needs |= {Need.TAILS}
    if config.use_weighting:
        needs |= {Need.AGREEMENT}
    return needs
