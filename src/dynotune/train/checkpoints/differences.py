"""What must be as it was for a resume to mean "going on": the plan, and every setting that shapes an update.

Anything else would train on with values that the configuration does not show, or on examples that were seen before.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynotune.errors import TrainingError

MAY_DIFFER = {"steps", "epochs"}
"""A run may be made longer."""

SHAPES_UPDATES = (
    "model_name_or_path", "model_revision", "random_weights", "dtype", "bf16", "added_tokens", "neftune_noise_alpha",
    "use_peft", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_target_parameters",
    "lora_modules_to_save", "use_rslora", "use_dora",
    "loss_type", "label_smoothing_factor",
    "optim", "optim_args", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm",
    "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps",
)  # fmt: skip


def settings_of(config: Any) -> dict[str, Any]:
    """The settings that a checkpoint remembers."""
    return {key: getattr(config, key) for key in SHAPES_UPDATES}


def check_same(path: Path, saved: Mapping[str, Any], plan: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise `TrainingError` with every difference between the checkpoint at `path` and this run."""
    for name, then, now in (("plan", saved["plan"], plan), ("configuration", saved["settings"], settings)):
        changed = [k for k in then.keys() | now.keys() if k not in MAY_DIFFER and then.get(k) != now.get(k)]
        if changed:
            listed = "; ".join(f"{key}: {then.get(key)} then, {now.get(key)} now" for key in sorted(changed))
            raise TrainingError(
                f"{path} was written under another {name} ({listed}). Resume with what that run had, or start a new run from"
                " its weights."
            )
    done = saved["progress"]["step"]
    if plan["steps"] < done:
        raise TrainingError(
            f"{path} has done {done} steps and this run asks for {plan['steps']}. Ask for more, or take the model that is"
            " there."
        )
