"""The table: every field of TRL's configurations and its one fate. The documentation and the checks read it."""

from collections.abc import Mapping

from dynotune.config.fates.dpo import DPO_CONFIG, DPO_ONLY, OLDER_DPO, REFUSED_IN_DPO, REFUSED_IN_SFT
from dynotune.config.fates.fate import Fate
from dynotune.config.fates.training import TRAINING_ARGUMENTS
from dynotune.config.fates.trl import (
    DATASET_CONFIG,
    MIXTURE_CONFIG,
    MODEL_CONFIG,
    SCRIPT_ARGUMENTS,
    SFT_CONFIG,
)

FATES: Mapping[str, Mapping[str, Fate]] = {
    "SFTConfig": {**TRAINING_ARGUMENTS, **SFT_CONFIG},
    "DPOConfig": {**TRAINING_ARGUMENTS, **DPO_CONFIG},
    "ModelConfig": MODEL_CONFIG,
    "ScriptArguments": SCRIPT_ARGUMENTS,
    "DatasetMixtureConfig": MIXTURE_CONFIG,
    "DatasetConfig": DATASET_CONFIG,
}
"""TRL's class name to its fields. `DatasetConfig` is an entry of `datasets:`; the others are flat keys."""

NEWER_FIELDS = frozenset({"activation_checkpointing", "activation_checkpointing_kwargs"})
"""Fields that transformers has from 5.23 on and the older versions we support lack."""

OTHER_DEFAULTS: Mapping[str, str] = {
    "dtype": MODEL_CONFIG["dtype"].reason,
    "precompute_ref_log_probs": DPO_ONLY["precompute_ref_log_probs"].reason,
    "gradient_checkpointing": TRAINING_ARGUMENTS["gradient_checkpointing"].reason,
}
"""Honoured keys whose default is not TRL's, and why. The test fails on any other difference."""

SFT_FATES: Mapping[str, Fate] = {
    **REFUSED_IN_SFT,
    **FATES["SFTConfig"],
    **MODEL_CONFIG,
    **SCRIPT_ARGUMENTS,
    **MIXTURE_CONFIG,
}
"""The flat keys as `dynotune sft` meets them."""

DPO_FATES: Mapping[str, Fate] = {
    **REFUSED_IN_DPO,
    **OLDER_DPO,
    **FATES["DPOConfig"],
    **MODEL_CONFIG,
    **SCRIPT_ARGUMENTS,
    **MIXTURE_CONFIG,
}
"""The flat keys as a DPO run meets them."""
