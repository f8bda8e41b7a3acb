"""Keys that came with a release, and names that releases brought and took away.

Each was looked for in the wheels of transformers 4.36.2, 4.40.2, 4.41.2, 4.44.2, 4.45.0, 4.48.3, 4.49.0, 4.50.0, 4.52.4,
4.57.1 and 5.0.0, of TRL 0.8.6 to 1.0.0 (19 releases), of LLaMA-Factory 0.7.1 to 0.9.4 (8), of PEFT 0.9.0 and 0.10.0, and of
datasets 2.21.0, 3.0.0 and 4.0.0:
`last` is the last release that was seen without, `since` the first.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_T, _TRL, _LF = "transformers", "trl", "llamafactory"


@dataclass(frozen=True, slots=True)
class Came:
    """What a release brought."""

    package: str
    last: str
    """The last release that was seen without it."""

    before: str = ""
    """What it was called until then; empty: there was nothing of the kind."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A name that can no longer be imported."""

    since: str
    """The first release that was seen without it."""

    text: str
    """What to do instead."""


KEYS: Mapping[str, Came] = {
    "eval_strategy": Came(_T, "4.40.2", "evaluation_strategy"),
    "batch_eval_metrics": Came(_T, "4.40.2"),
    "accelerator_config": Came(_T, "4.36.2"),
    "dataloader_prefetch_factor": Came(_T, "4.36.2"),
    "optim_target_modules": Came(_T, "4.36.2"),
    "eval_on_start": Came(_T, "4.41.2"),
    "torch_empty_cache_steps": Came(_T, "4.41.2"),
    "use_liger_kernel": Came(_T, "4.44.2"),
    "average_tokens_across_devices": Came(_T, "4.45.0"),
    "include_for_metrics": Came(_T, "4.45.0"),
    "liger_kernel_config": Came(_T, "4.52.4"),
    "parallelism_config": Came(_T, "4.52.4"),
    "trackio_space_id": Came(_T, "4.52.4"),
}
"""Of `TrainingArguments`."""

FACTORY_KEYS: Mapping[str, Came] = {
    "pref_beta": Came(_LF, "0.7.1", "dpo_beta"),
    "pref_loss": Came(_LF, "0.7.1", "dpo_loss"),
    "pref_ftx": Came(_LF, "0.7.1", "dpo_ftx"),
    "neat_packing": Came(_LF, "0.8.0"),
    "mask_history": Came(_LF, "0.8.0"),
    "eval_dataset": Came(_LF, "0.8.0"),
    "enable_liger_kernel": Came(_LF, "0.8.3"),
    "use_unsloth_gc": Came(_LF, "0.8.3"),
    "video_maxlen": Came(_LF, "0.8.3"),
    "freeze_language_model": Came(_LF, "0.9.1"),
    "image_max_pixels": Came(_LF, "0.9.1", "image_resolution"),
    "video_max_pixels": Came(_LF, "0.9.1", "video_resolution"),
    "media_dir": Came(_LF, "0.9.1", "image_dir"),
    "use_reentrant_gc": Came(_LF, "0.9.1"),
    "use_swanlab": Came(_LF, "0.9.1"),
    "add_special_tokens": Came(_LF, "0.9.2", "new_special_tokens"),
    "add_tokens": Came(_LF, "0.9.2"),
    "enable_thinking": Came(_LF, "0.9.2"),
    "use_kv_cache": Came(_LF, "0.9.3", "use_cache"),
    "fp8": Came(_LF, "0.9.3"),
    "use_dft_loss": Came(_LF, "0.9.3"),
}
"""Of LLaMA-Factory's arguments."""

SFT_KEYS: Mapping[str, Came] = {
    "max_length": Came(_TRL, "0.15.2", "max_seq_length"),
    "padding_free": Came(_TRL, "0.15.2"),
    "completion_only_loss": Came(_TRL, "0.16.1"),
    "activation_offloading": Came(_TRL, "0.17.0"),
    "assistant_only_loss": Came(_TRL, "0.18.2"),
    "packing_strategy": Came(_TRL, "0.18.2"),
    "chat_template_path": Came(_TRL, "0.18.2"),
    "loss_type": Came(_TRL, "0.22.2"),
}
"""Of `SFTConfig`."""

DPO_KEYS: Mapping[str, Came] = {
    "padding_free": Came(_TRL, "0.12.2"),
    "precompute_ref_batch_size": Came(_TRL, "0.12.2"),
    "ld_alpha": Came(_TRL, "0.17.0"),
    "activation_offloading": Came(_TRL, "0.27.0"),
}
"""Of `DPOConfig`."""

GONE: Mapping[tuple[str, str], Gone] = {
    ("peft", "prepare_model_for_int8_training"): Gone("0.10", "Call `prepare_model_for_kbit_training`"),
    (_T, "AdamW"): Gone("4.50", "Import `torch.optim.AdamW`"),
    (_T, "Conversation"): Gone("4.44.2", "Give pipelines a list of messages"),
    (_T, "top_k_top_p_filtering"): Gone("4.40.2", "Copy the function, or use `generate`"),
    (_T, "LineByLineTextDataset"): Gone("5.0", "Read the lines with `datasets`"),
    (_T, "TextDataset"): Gone("5.0", "Read the text with `datasets`"),
    ("datasets", "load_metric"): Gone("3.0", "Call `evaluate.load`"),
    ("datasets", "list_metrics"): Gone("3.0", "Use the package `evaluate`"),
    ("datasets", "set_caching_enabled"): Gone("3.0", "Call `enable_caching` or `disable_caching`"),
    (_TRL, "DataCollatorForCompletionOnlyLM"): Gone(
        "0.20", "Set `completion_only_loss` or `assistant_only_loss` in `SFTConfig`"
    ),
    ("trl.trainer", "ConstantLengthDataset"): Gone("0.20", "Set `packing: true`"),
    (_TRL, "IterativeSFTTrainer"): Gone("0.24", "Keep TRL below it"),
    (_TRL, "DDPOTrainer"): Gone("0.24", "Keep TRL below it"),
    (_TRL, "AlignPropTrainer"): Gone("0.24", "Keep TRL below it"),
    (_TRL, "setup_chat_format"): Gone("0.26", "Call `clone_chat_template`, or set `tokenizer.chat_template`"),
    **{
        (_TRL, name): Gone("0.29", "Import it from `trl.experimental`, or keep TRL below it")
        for name in (
            "PPOTrainer", "PPOConfig", "ORPOTrainer", "ORPOConfig", "CPOTrainer", "CPOConfig", "BCOTrainer", "GKDTrainer",
            "OnlineDPOTrainer", "XPOTrainer", "NashMDTrainer", "PRMTrainer", "AutoModelForCausalLMWithValueHead",
        )
    },
}  # fmt: skip
"""By module and name. `ConstantLengthDataset` was looked for in trl 0.13.0 to 0.26.2."""

BROUGHT: Mapping[tuple[str, str], str] = {
    (_TRL, "SFTConfig"): "0.8.6",
    (_TRL, "DPOConfig"): "0.8.6",
    (_TRL, "ScriptArguments"): "0.11.4",
    (_TRL, "GRPOTrainer"): "0.12.2",
    (_TRL, "GRPOConfig"): "0.12.2",
    (_TRL, "clone_chat_template"): "0.18.2",
}
"""The last release that was seen without a name, by package and name."""
