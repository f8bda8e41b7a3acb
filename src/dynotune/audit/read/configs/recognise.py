"""Whose configuration a file is, by its keys and values; its name decides only between methods."""

import functools
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

UNKNOWN = "unknown"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


AXOLOTL = _names(
    "base_model sequence_len micro_batch_size adapter sample_packing val_set_size dataset_prepared_path num_epochs"
    " pad_to_sequence_len eval_sample_packing lora_target_linear optimizer lr_scheduler train_on_inputs strict"
    " saves_per_epoch evals_per_epoch flash_attention wandb_entity wandb_watch wandb_log_model base_model_config"
    " tokenizer_type rl rl_beta special_tokens plugins datasets test_datasets"
)
LLAMA_FACTORY = _names(
    "stage finetuning_type cutoff_len lora_rank lora_target dataset_dir template plot_loss overwrite_cache"
    " preprocessing_num_workers pref_beta pref_loss flash_attn quantization_bit val_size max_samples neat_packing"
    " adapter_name_or_path export_dir do_train infer_backend"
)
LLAMA_FACTORY_V1 = _names(
    "train_dataset model_class kernel_config dist_config peft_config sample_backend batching_strategy"
)
ACCELERATE = _names(
    "compute_environment distributed_type main_training_function rdzv_backend same_network num_machines"
    " machine_rank downcast_bf16 fsdp_config deepspeed_config tpu_env use_cpu"
)
DEEPSPEED = _names(
    "zero_optimization train_micro_batch_size_per_gpu train_batch_size gradient_clipping steps_per_print"
    " zero_allow_untested_optimizer wall_clock_breakdown optimizer scheduler fp16 bf16 activation_checkpointing"
)
TRL = _names(
    "model_name_or_path dataset_name output_dir per_device_train_batch_size learning_rate num_train_epochs max_steps"
    " gradient_accumulation_steps attn_implementation use_peft lora_r max_length packing dtype torch_dtype"
    " dataset_train_split dataset_config lora_alpha bf16 optim gradient_checkpointing logging_steps eval_strategy"
    " max_seq_length report_to warmup_ratio warmup_steps lr_scheduler_type save_strategy datasets seed"
)
TRL_ONLY = _names(
    "dataset_name use_peft lora_r packing max_length max_seq_length dataset_train_split dataset_test_split"
    " dataset_text_field dataset_config completion_only_loss assistant_only_loss packing_strategy eval_packing"
    " padding_free beta loss_type precompute_ref_log_probs model_init_kwargs num_generations dataset_num_proc"
    " attn_implementation lora_target_modules load_in_4bit"
)
OPEN_INSTRUCT = _names(
    "dataset_mixer_list dataset_mixer_list_splits dataset_mixer dataset_transform_fn max_train_samples use_flash_attn"
    " tokenizer_name tokenizer_revision chat_template_name checkpointing_steps keep_last_n_checkpoints push_to_hub"
    " try_launch_beaker_eval_jobs reduce_loss use_slow_tokenizer with_tracking exp_name dpo_beta dpo_loss_type"
    " preprocessing_num_workers train_file use_lora use_qlora max_train_steps"
)
DPO_ONLY = _names(
    "beta precompute_ref_log_probs label_smoothing f_divergence_type reference_free ref_model_name_or_path rpo_alpha"
    " sync_ref_model ld_alpha max_prompt_length loss_weights ref_model_init_kwargs generate_during_eval"
)
DPO_LOSSES = _names(
    "sigmoid hinge ipo exo_pair nca_pair robust bco_pair sppo_hard aot apo_zero apo_down discopop sigmoid_norm"
)
OTHER_METHODS = _names(
    "num_generations max_completion_length use_vllm reward_funcs desirable_weight undesirable_weight"
    " center_rewards_coefficient reward_model_path num_ppo_epochs"
)
SFT_ONLY = _names(
    "packing packing_strategy eval_packing completion_only_loss assistant_only_loss dataset_text_field"
    " max_seq_length chat_template_path"
)


def kind_of(file: str, values: Mapping[str, Any]) -> str:
    """`trl sft`, `trl dpo`, `trl other`, `dynotune sft`, `dynotune dpo`, `axolotl`, `llama-factory`,
    `llama-factory data`, `open-instruct`, `accelerate`, `deepspeed`, `hydra`, `transformers`, or `unknown`."""
    keys = {str(key) for key in values}
    if _is_deepspeed(values):
        return "deepspeed"
    by_hand = "distributed_type" in keys and keys & {"mixed_precision", "num_processes", "num_machines", "machine_rank"}
    if (
        by_hand
        or keys & {"compute_environment", "main_training_function"}
        or (len(keys & ACCELERATE) >= 2 and not keys & TRL_ONLY and "model_name_or_path" not in keys)
    ):
        return "accelerate"
    if PurePosixPath(file).name == "dataset_info.json" or _is_data_list(values):
        return "llama-factory data"
    if ("defaults" in keys and isinstance(values["defaults"], list)) or any(_targets(values)):
        return "hydra"
    if "base_model" in keys and len(keys & AXOLOTL) >= 2:
        return "axolotl"
    if keys & LLAMA_FACTORY_V1 and not keys & {"stage", "finetuning_type"}:
        return UNKNOWN  # the keys of its new engine are in no released version that we know
    if (keys & {"stage", "finetuning_type"} or len(keys & LLAMA_FACTORY) >= 3) and len(keys & LLAMA_FACTORY) >= 2:
        return "llama-factory"
    if keys & {"dataset_mixer_list", "dataset_mixer_dict"}:
        return "open-instruct"
    if len(keys & OPEN_INSTRUCT) >= (4 if keys & {"dataset_name", "use_peft"} else 3):
        return "open-instruct"
    if len(keys & AXOLOTL) >= 5 and "model_name_or_path" not in keys:
        return "axolotl"
    if len(keys & TRL) < 2 or not keys & (
        TRL_ONLY | {"model_name_or_path", "output_dir", "per_device_train_batch_size"}
    ):
        return UNKNOWN
    if len(keys) >= MANY and "model_name_or_path" not in keys and 2 * len(keys & _known()) < len(keys):
        return UNKNOWN  # some words that everybody uses, in a file of somebody's own
    method = method_of(file, values)
    if keys & _only_ours():
        return f"dynotune {'dpo' if method == 'dpo' else 'sft'}"
    if not keys & (TRL_ONLY | {"model_name_or_path", "datasets"}):
        # Arguments alone: a file with the names of another trainer's settings is that trainer's, whoever that is.
        return UNKNOWN if keys & (AXOLOTL | LLAMA_FACTORY) - {"adapter_name_or_path", "do_train"} else "transformers"
    return f"trl {method}"


USUAL = _names(
    "env columns overwrite_output_dir init_lora_weights chat_template_kwargs early_stopping_patience cpo_alpha simpo_gamma"
    " early_stopping_threshold global_batch_size tokenizer_name_or_path max_time eval_samples load_in_memory gpus"
)
"""Keys of Dynotune's that other trainers, older releases or people's own files have too."""


MANY = 6
"""Keys from which on most must be known for a file to be TRL's, where it does not name its model as TRL does."""


@functools.cache
def _known() -> frozenset[str]:
    """Keys of TRL's, of any release that we know, and ours."""
    from dynotune.config.dpo import DPOConfig
    from dynotune.config.fates.legacy import LEGACY, RENAMED
    from dynotune.config.fates.table import DPO_FATES, SFT_FATES
    from dynotune.config.sft import SFTConfig

    return frozenset({*SFT_FATES, *DPO_FATES, *LEGACY, *RENAMED, *SFTConfig.model_fields, *DPOConfig.model_fields})


@functools.cache
def _only_ours() -> frozenset[str]:
    """Keys that Dynotune has and TRL has not."""
    from dynotune.config.dpo import DPOConfig
    from dynotune.config.fates.legacy import LEGACY, RENAMED
    from dynotune.config.fates.table import DPO_FATES, SFT_FATES
    from dynotune.config.sft import SFTConfig

    theirs = {*SFT_FATES, *DPO_FATES, *LEGACY, *RENAMED}
    return frozenset({*SFTConfig.model_fields, *DPOConfig.model_fields} - theirs - USUAL)


def method_of(file: str, values: Mapping[str, Any]) -> str:
    """`sft`, `dpo` or `other`, for keys in TRL's words."""
    keys = {str(key) for key in values}
    if keys & OTHER_METHODS:
        return "other"
    loss = values.get("loss_type")
    losses = {str(one) for one in (loss if isinstance(loss, list) else [loss])}
    if keys & DPO_ONLY - {"label_smoothing"} or losses & DPO_LOSSES:
        return "other" if "kto" in _words(file) else "dpo"
    if keys & SFT_ONLY:
        return "sft"
    words = _words(file)
    if words & {"grpo", "kto", "reward", "rloo", "ppo", "orpo", "distillation"}:
        return "other"
    return "dpo" if "dpo" in words and "sft" not in words else "sft"


def _words(file: str) -> set[str]:
    text = "".join(char if char.isalnum() else " " for char in file.lower())
    return set(text.split())


def _is_deepspeed(values: Mapping[str, Any]) -> bool:
    if isinstance(values.get("zero_optimization"), Mapping):
        return True
    nested = sum(isinstance(values.get(key), Mapping) for key in ("fp16", "bf16", "optimizer", "scheduler"))
    return nested >= 1 and len({str(key) for key in values} & DEEPSPEED) >= 3


def _is_data_list(values: Mapping[str, Any]) -> bool:
    """`dataset_info.json`: names of data sets, each with its file or place on the hub."""
    entries = list(values.values())
    marks = {"file_name", "hf_hub_url", "ms_hub_url", "script_url"}
    return bool(entries) and all(isinstance(one, Mapping) and marks & set(one) for one in entries)


def _targets(values: Any) -> Iterable[str]:
    pending = [values]
    while pending:
        one = pending.pop()
        if isinstance(one, Mapping):
            if isinstance(one.get("_target_"), str):
                yield one["_target_"]
            pending += list(one.values())
        elif isinstance(one, list):
            pending += one
