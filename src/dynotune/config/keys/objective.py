"""What is minimised."""

from typing import Literal

from pydantic import Field

from dynotune.config.keys.topic import Topic


class SFTObjectiveConfig(Topic):
    loss_type: Literal["nll", "dft"] = "nll"
    """`nll`: negative log-likelihood. `dft`: the same, each token weighted by its own probability (arXiv
    2508.05629)."""

    label_smoothing_factor: float = Field(default=0.0, ge=0, lt=1)
    """Share of the target spread over the whole vocabulary. With `loss_type: nll` only."""
