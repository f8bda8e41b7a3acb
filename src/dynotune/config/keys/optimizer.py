"""How a gradient becomes an update, and how the learning rate moves."""

from typing import Any

from pydantic import Field

from dynotune.config.keys.topic import Topic


class OptimizerConfig(Topic):
    optim: str = "adamw_torch_fused"
    """Optimizer by transformers' name: `adamw_torch_fused`, `adamw_torch`, `sgd`, `adagrad`, `rmsprop`, `adafactor`,
    or `adamw_8bit` (also `adamw_bnb_8bit`): bitsandbytes' AdamW with states of 8 bits, *behavioural*. Others are refused by
    name."""

    optim_args: str | None = None
    """More optimizer arguments, `key=value` separated by commas. All are applied; transformers ignores some, and of those it
    is said: with AdamW and Adafactor all of them."""

    learning_rate: float = Field(default=2e-5, ge=0)
    """Peak learning rate."""

    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay on everything but biases and norms, as in transformers."""

    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW's first beta."""

    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    """AdamW's second beta."""

    adam_epsilon: float = Field(default=1e-8, ge=0)
    """AdamW's epsilon."""

    max_grad_norm: float = Field(default=1.0, ge=0)
    """Clip the gradient's norm to this value; 0 does not clip."""

    lr_scheduler_type: str = "linear"
    """Schedule by transformers' name: `linear`, `cosine`, `constant`, `constant_with_warmup`, `warmup_stable_decay`,
    ..."""

    lr_scheduler_kwargs: dict[str, Any] = Field(default_factory=dict)
    """More arguments of the schedule."""

    warmup_steps: float = Field(default=0, ge=0)
    """Steps of linear warm-up; below 1 it is a share of all steps."""
