"""How preferences are learned: the loss of a pair, and the reference that it is measured against."""

from typing import Literal, get_args

from pydantic import Field

from dynotune.config.keys.topic import Topic

PreferenceLoss = Literal[
    "sigmoid",
    "hinge",
    "ipo",
    "exo_pair",
    "nca_pair",
    "robust",
    "bco_pair",
    "sppo_hard",
    "aot",
    "aot_unpaired",
    "apo_zero",
    "apo_down",
    "discopop",
    "sft",
    "sigmoid_norm",
    "dpo_norm",
    "simpo",
    "orpo",
    "cpo",
]

PREFERENCE_LOSSES: tuple[str, ...] = get_args(PreferenceLoss)
"""TRL's fifteen, open-instruct's `dpo_norm`, and three that need no reference."""


def _dpo() -> list[PreferenceLoss]:
    return ["sigmoid"]


class PreferenceConfig(Topic):
    loss_type: list[PreferenceLoss] = Field(default_factory=_dpo, min_length=1)
    """What a pair is trained by, or several losses that are added (`[sigmoid, sft]`). TRL's: `sigmoid` (DPO), `hinge`,
    `ipo`, `exo_pair`, `nca_pair`, `robust`, `bco_pair`, `sppo_hard`, `aot`, `aot_unpaired`, `apo_zero`, `apo_down`,
    `discopop`, `sft`, `sigmoid_norm`; open-instruct's `dpo_norm`; without a reference: `simpo`, `orpo`, `cpo`."""

    loss_weights: list[float] | None = None
    """A factor for each loss of `loss_type`. Default: 1 each."""

    beta: float = Field(default=0.1, gt=0)
    """How strongly the policy is held to the reference: more is stronger. `ipo`: its tau. `orpo`: the weight of the odds
    ratio. `simpo`: the scale of the reward; its paper takes 2 to 2.5."""

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """The share of pairs whose preference may be the wrong way round. `robust` (below 0.5), `exo_pair` (above 0), `aot`,
    `aot_unpaired`, `dpo_norm`, `simpo` and `cpo` read it; the others do not, as in TRL."""

    f_divergence_type: Literal["reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"] = "reverse_kl"
    """The divergence from the reference that a reward stands for (f-DPO, arXiv 2309.16240)."""

    f_alpha_divergence_coef: float = 0.5
    """The alpha of `f_divergence_type: alpha_divergence`; 1 is `reverse_kl`."""

    ld_alpha: float | None = Field(default=None, ge=0, le=1)
    """Weight of the label tokens behind the length of the shorter answer (LD-DPO, arXiv 2409.06411): 1 changes nothing,
    0 leaves them out. Default: 1, without the work."""

    use_weighting: bool = False
    """Weight each pair by how likely the policy itself would have written it (WPO, arXiv 2406.11827)."""

    discopop_tau: float = Field(default=0.05, gt=0)
    """The temperature of `discopop`."""

    simpo_gamma: float = Field(default=0.5, ge=0)
    """The margin that `simpo` asks of the rewards, after `beta`."""

    cpo_alpha: float = Field(default=1.0, ge=0)
    """Weight of the negative log-likelihood in `cpo`."""

    group_by_prompt: bool = False
    """Let pairs with one prompt follow each other in every epoch, so that more of them meet in a step, which then computes
    their prompt once. *Behavioural*: a step holds other pairs, and more that are alike. Pairs with one prompt that meet by
    chance share it anyway."""

    per_device_eval_batch_size: int = Field(default=8, gt=0)
    """Held-out pairs in a batch, where a loss sorts a batch (`aot`, `aot_unpaired`) or averages over its tokens (`sft`,
    `orpo`, `cpo`). No other loss depends on it, and nothing else does."""
