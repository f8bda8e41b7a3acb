"""For every key of the configuration: what it means when a checkpoint was written with another value than the run has now.

`tests/train/checkpoints/test_differences.py` holds this table against the configuration: a key that is in neither is a
failing test.
"""

from dataclasses import dataclass
from enum import StrEnum


class Matter(StrEnum):
    """What a difference does."""

    ERROR = "error"
    """The run cannot go on: another model, another objective, or states that the checkpoint lacks."""

    PLAN = "plan"
    """It counts by what follows from it: an error where steps would hold other examples, else nothing."""

    WARNING = "warning"
    """Behavioural: the run goes on with the value that it has now, and this is said."""

    NOTHING = "nothing"
    """How a run is executed, shown or kept, not what it learns. Named all the same."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a difference in one key does, and why."""

    matter: Matter
    reason: str = ""


def _each(matter: Matter, reason: str, *keys: str) -> dict[str, Decision]:
    return {key: Decision(matter, reason) for key in keys}


OTHER_BASE = "the weights in the checkpoint belong to the other model"
OTHER_ADAPTER = "the weights in the checkpoint belong to the other adapter"
OTHER_LOSS = "losses before and after, and the best evaluation so far, would be of two objectives"
OTHER_STATES = "the optimizer's states in the checkpoint are not those that it needs"
FROM_HERE = "from here on the run takes the value that it has now"
OTHER_PRECISION = "from here on steps are computed in another precision"
EVALUATIONS = "evaluations before and after are not made alike"

DECISIONS: dict[str, Decision] = {
    **_each(
        Matter.ERROR, OTHER_BASE,
        "model_name_or_path", "model_revision", "random_weights", "model_init_kwargs", "dtype", "added_tokens",
    ),
    **_each(
        Matter.ERROR, OTHER_ADAPTER,
        "use_peft", "lora_r", "lora_alpha", "lora_target_modules", "lora_target_parameters", "lora_modules_to_save",
        "lora_task_type", "use_rslora", "use_dora", "init_lora_weights",
    ),
    **_each(
        Matter.ERROR, OTHER_LOSS,
        "loss_type", "label_smoothing_factor", "loss_weights", "beta", "label_smoothing", "f_divergence_type",
        "f_alpha_divergence_coef", "ld_alpha", "use_weighting", "discopop_tau", "simpo_gamma", "cpo_alpha",
    ),
    **_each(Matter.ERROR, OTHER_STATES, "optim", "optim_args"),
    **_each(
        Matter.WARNING, FROM_HERE,
        "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "lr_scheduler_type",
        "lr_scheduler_kwargs", "warmup_steps", "lora_dropout", "neftune_noise_alpha", "on_nonfinite_step",
        "max_nonfinite_steps", "max_consecutive_nonfinite_steps", "pad_token", "disable_dropout",
    ),
    **_each(
        Matter.WARNING, "the run gets another length, and its schedule with it", "num_train_epochs", "max_steps",
    ),
    **_each(Matter.WARNING, OTHER_PRECISION, "bf16", "tf32", "use_cpu"),
    **_each(
        Matter.WARNING, EVALUATIONS,
        "eval_dataset_name", "dataset_test_split", "eval_packing", "eval_strategy", "eval_steps", "eval_delay",
        "metric_for_best_model", "greater_is_better", "load_best_model_at_end", "early_stopping_patience",
        "early_stopping_threshold", "per_device_eval_batch_size",
    ),
    **_each(
        Matter.PLAN, "what it decides is in the plan and the tokens",
        "seed", "data_seed", "train_sampling_strategy", "dataloader_drop_last", "packing", "packing_strategy",
        "group_by_prompt",
        "dataset_name", "dataset_config", "dataset_train_split", "datasets", "test_split_size", "columns",
        "dataset_text_field", "max_length", "truncation_mode", "shuffle_dataset", "on_bad_row", "chat_template_path",
        "completion_only_loss", "assistant_only_loss", "chat_template_kwargs", "tokenizer_name_or_path", "eos_token",
    ),
    **_each(
        Matter.NOTHING, "a step keeps the examples that it has in the checkpoint",
        "per_device_train_batch_size", "gradient_accumulation_steps", "global_batch_size",
    ),
    **_each(
        Matter.NOTHING, "it is execution: the same updates",
        "packed_execution", "micro_batch_tokens", "attn_implementation", "gradient_checkpointing",
        "gradient_checkpointing_kwargs", "full_determinism", "device_peak_tflops", "trust_remote_code",
        "dataset_num_proc", "token_cache", "token_cache_dir", "load_in_memory", "gpus", "ddp_timeout", "speedups",
        "padding_free", "use_liger_kernel", "liger_kernel_config", "torch_compile", "torch_compile_backend",
        "torch_compile_mode", "activation_memory", "activation_memory_budget", "activation_offloading",
        "precompute_ref_log_probs",
    ),
    **_each(
        Matter.NOTHING, "it decides what is shown and kept",
        "output_dir", "overwrite_output_dir", "run_name", "disable_tqdm", "resume_from_checkpoint", "env", "max_time",
        "logging_strategy", "logging_steps", "logging_first_step", "report_to", "project", "push_to_hub", "hub_model_id",
        "hub_token", "hub_private_repo", "hub_strategy", "hub_revision", "eval_on_start", "eval_samples",
        "eval_sample_max_new_tokens", "save_strategy", "save_steps", "save_total_limit", "save_only_model",
    ),
}  # fmt: skip

SAME_OPTIMIZER = (frozenset({"adamw_torch", "adamw_torch_fused"}), frozenset({"adamw_8bit", "adamw_bnb_8bit"}))
"""Names of `optim` under which the same states stand."""

QUIET = frozenset({"resume_from_checkpoint", "overwrite_output_dir", "env", "hub_token"})
"""Keys that differ in every resume, or whose values are never kept."""
