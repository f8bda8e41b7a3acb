"""A run that is only measured: whatever would leave something behind is off, and what is trained stays."""

from pathlib import Path
from typing import Any

from dynotune.config.whole import WholeConfig
from dynotune.plan.summary import ENDLESS

QUIET: dict[str, Any] = {
    "output_dir": None,
    "report_to": "none",
    "push_to_hub": False,
    "save_strategy": "no",
    "eval_strategy": "no",
    "eval_dataset_name": None,
    "eval_on_start": False,
    "load_best_model_at_end": False,
    "early_stopping_patience": None,
    "eval_samples": 0,
    "disable_tqdm": True,
    "resume_from_checkpoint": None,
    "max_time": None,
}
"""What is off: trackers, the hub, the run folder, evaluations, checkpoints."""


def quiet(config: WholeConfig, folder: Path) -> WholeConfig:
    """As a bench or a profile runs it: behind the data's end the next epoch begins, in an order of its own."""
    silent = {key: value for key, value in QUIET.items() if key in type(config).model_fields}
    silent |= without_evaluations(config)
    return config.replace(**{**silent, "output_dir": str(folder), "overwrite_output_dir": True, "max_steps": ENDLESS})


def without_evaluations(config: WholeConfig) -> dict[str, Any]:
    """Keys that need evaluations, as they are where there are none: such a schedule never moves."""
    if config.lr_scheduler_type != "reduce_lr_on_plateau":
        return {}
    return {"lr_scheduler_type": "constant_with_warmup", "lr_scheduler_kwargs": {}}
