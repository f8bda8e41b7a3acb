"""Held-out loss, sampled generations, the best checkpoint, early stop."""

from typing import Literal

from pydantic import Field

from dynotune.config.keys.topic import Topic


class EvaluationConfig(Topic):
    eval_strategy: Literal["no", "steps", "epoch"] = "no"
    """When held-out data is evaluated."""

    eval_steps: float | None = Field(default=None, gt=0)
    """Steps between evaluations; below 1 it is a share of all steps. Default: `logging_steps`."""

    eval_delay: float = Field(default=0, ge=0)
    """Steps (or epochs, with `eval_strategy: epoch`) before the first evaluation."""

    eval_on_start: bool = False
    """Evaluate before the first step too."""

    eval_samples: int = Field(default=0, ge=0)
    """Prompts of the held-out data (the first ones) for which a greedy generation is written at each evaluation."""

    eval_sample_max_new_tokens: int = Field(default=128, gt=0)
    """Longest generation in tokens."""

    load_best_model_at_end: bool = False
    """Keep the best checkpoint and take it at the end. Needs an evaluation at every save; an evaluation between two saves
    that is the best so far is saved too."""

    metric_for_best_model: str | None = None
    """Which metric is best. Default: `eval_loss` (`loss` means the same)."""

    greater_is_better: bool | None = None
    """Whether a larger metric is better. Default: no for a name that ends in `loss`, else yes."""

    early_stopping_patience: int | None = Field(default=None, gt=0)
    """Stop after this many evaluations without an improvement."""

    early_stopping_threshold: float = Field(default=0.0, ge=0)
    """How much the metric must improve to count."""
