"""transformers' names of optimizers and schedules, so that a misspelled one is caught before anything is loaded."""

from dynotune.config.keys.preference import PREFERENCE_LOSSES

SCHEDULES = (
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "reduce_lr_on_plateau",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "warmup_stable_decay",
    "greedy",
)

OPTIMIZERS = (
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_torch_xla",
    "adamw_torch_npu_fused",
    "adamw_apex_fused",
    "adafactor",
    "adamw_anyprecision",
    "adamw_torch_4bit",
    "adamw_torch_8bit",
    "ademamix",
    "sgd",
    "adagrad",
    "adamw_bnb_8bit",
    "adamw_8bit",
    "ademamix_8bit",
    "lion_8bit",
    "lion_32bit",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "paged_ademamix_32bit",
    "paged_ademamix_8bit",
    "paged_lion_32bit",
    "paged_lion_8bit",
    "rmsprop",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit",
    "galore_adamw",
    "galore_adamw_8bit",
    "galore_adafactor",
    "galore_adamw_layerwise",
    "galore_adamw_8bit_layerwise",
    "galore_adafactor_layerwise",
    "lomo",
    "adalomo",
    "grokadamw",
    "schedule_free_radam",
    "schedule_free_adamw",
    "schedule_free_sgd",
    "apollo_adamw",
    "apollo_adamw_layerwise",
    "stable_adamw",
)
"""transformers' optimizers."""

EIGHT_BIT_OPTIMIZERS = ("adamw_8bit", "adamw_bnb_8bit")
"""transformers' names of one and the same optimizer, bitsandbytes' AdamW with states of 8 bits."""

SUPPORTED_OPTIMIZERS = (
    "adamw_torch_fused",
    "adamw_torch",
    "sgd",
    "adagrad",
    "rmsprop",
    "adafactor",
    *EIGHT_BIT_OPTIMIZERS,
)
"""Those that Dynotune has (`train/optimizer.py`, `train/eight_bits.py`)."""

DPO_LOSSES = frozenset(PREFERENCE_LOSSES) - {"dpo_norm", "simpo", "orpo", "cpo"}
"""TRL's `loss_type` of DPO."""
