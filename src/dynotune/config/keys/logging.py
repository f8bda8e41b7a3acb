"""What is logged, when, and to whom."""

from typing import Literal

from pydantic import Field

from dynotune.config.keys.topic import Topic


class LoggingConfig(Topic):
    logging_strategy: Literal["steps", "epoch", "no"] = "steps"
    """When metrics are written."""

    logging_steps: float = Field(default=10, gt=0)
    """Steps between log lines; below 1 it is a share of all steps. `loss` is the mean over the steps since the last
    line."""

    logging_first_step: bool = False
    """Also log step 1."""

    report_to: list[str] | str = "none"
    """Trackers: `wandb`, `tensorboard`, `mlflow`, `trackio`, ..., `all` (those installed) or `none`."""

    project: str = "huggingface"
    """Project name in trackers that have one."""

    push_to_hub: bool = False
    """Upload the final model or adapter and its card to the hub."""

    hub_model_id: str | None = None
    """Repository to push to. Default: the last part of `output_dir`."""

    hub_token: str | None = Field(default=None, repr=False, exclude=True)
    """Token for the hub; never written to the run folder. Default: the one you are logged in with."""

    hub_private_repo: bool | None = None
    """Make the repository private. Default: your organisation's default."""

    hub_strategy: Literal["end", "every_save"] = "every_save"
    """When to push: at the end, or at each save too."""

    hub_revision: str | None = None
    """Branch to push to."""
