"""Checkpoints."""

from typing import Literal

from pydantic import Field

from dynotune.config.keys.topic import Topic


class SavingConfig(Topic):
    save_strategy: Literal["no", "steps", "epoch", "best"] = "steps"
    """When a checkpoint is written."""

    save_steps: float = Field(default=500, gt=0)
    """Steps between checkpoints; below 1 it is a share of all steps."""

    save_total_limit: int | None = Field(default=None, gt=0)
    """Keep only this many checkpoints (the newest, and the best where one is tracked)."""

    save_only_model: bool = False
    """Write no optimizer state: smaller checkpoints from which training cannot be resumed."""
