"""The fate of every field that TRL's configurations inherit from transformers' `TrainingArguments`."""

from typing import Any

from dynotune.config.fates.fate import Fate, honoured, mapped, refused, superseded

ONE_FOLDER = "the first process writes the run folder, and the others their logs in it"
OWN_SUM = "gradients are summed once a step by code of its own, without DistributedDataParallel"
LATER_SHARDING = "sharding over several GPUs is later work"
WHOLE_MODELS = "remove it; `gpus` trains on several with a whole model on each"
NO_LOADER = "rows are tokenised before the first step and wait in memory, so no loader process runs beside the loop"
PINNED = "what goes to a GPU always leaves from pinned memory, so that copying does not hold up the loop"
LIGER = ("liger_rms_norm", "liger_rope", "liger_swiglu", "liger_cross_entropy")
NO_COMPUTE_METRICS = "evaluation reports losses over label tokens and sampled generations, and keeps no predictions"
METRICS_INSTEAD = "compute your metric from the saved model, or in a callback passed to `train_sft`"

_ACCELERATOR_DEFAULTS: dict[str, Any] = {
    "split_batches": False,
    "dispatch_batches": None,
    "even_batches": True,
    "use_seedable_sampler": True,
    "non_blocking": False,
    "gradient_accumulation_kwargs": None,
    "use_configured_state": False,
}


def _is_default_accelerator_config(value: Any) -> bool:
    return isinstance(value, dict) and all(
        key in _ACCELERATOR_DEFAULTS and value[key] == _ACCELERATOR_DEFAULTS[key] for key in value
    )


TRAINING_ARGUMENTS: dict[str, Fate] = {
    # The run
    "output_dir": honoured("unset, it is a new folder `runs/sft-<date>-<time>`, never one that an older run filled"),
    "run_name": honoured(),
    "project": honoured(),
    "seed": honoured(),
    "data_seed": honoured(),
    "full_determinism": honoured(),
    "use_cpu": honoured(),
    "tf32": honoured(),
    "bf16": honoured("unset, it is on where the device has bfloat16; the CPU computes in float32"),
    "resume_from_checkpoint": honoured(),
    "disable_tqdm": honoured(),
    "do_train": superseded("`dynotune sft` always trains", default=False, silent=(True, False)),
    "do_eval": superseded("`eval_strategy` alone decides whether held-out data is evaluated", default=False),
    "do_predict": superseded("there is no prediction step; `eval_samples` writes generations", default=False),
    "fp16": refused(
        "float16 needs a loss scale that skips steps when it overflows, which changes the updates",
        "use `bf16: true`, or `bf16: false` with `dtype: float32`",
        default=False,
    ),
    "fp16_full_eval": refused(
        "evaluation runs in the precision of training, and float16 is not supported", "remove it", default=False
    ),
    "bf16_full_eval": superseded("evaluation runs in the precision of training", default=False),
    # The step
    "per_device_train_batch_size": honoured(),
    "gradient_accumulation_steps": honoured(),
    "num_train_epochs": honoured(),
    "max_steps": honoured(),
    "max_grad_norm": honoured(),
    "label_smoothing_factor": honoured(),
    "neftune_noise_alpha": honoured(),
    "train_sampling_strategy": honoured(
        "`random` and `sequential`; `batch_rebalance` is taken as `random`, since it only moves work between devices; "
        "`group_by_length` is refused, since it changes which examples share a step"
    ),
    "length_column_name": superseded("lengths are counted, not read from a column", default="length"),
    "dataloader_drop_last": honoured("of the training data; held-out data is evaluated whole, which is said"),
    "average_tokens_across_devices": superseded(
        "the loss is always divided by the label tokens of the whole step",
        default=True,
        silent=(True, None),
        refuses={False: "a mean of means depends on how a step is split, which the loss here never does"},
    ),
    "auto_find_batch_size": superseded(
        "a step's content is fixed by the batch settings, and `micro_batch_tokens` is chosen by the memory there is",
        default=False,
    ),
    "gradient_checkpointing": honoured(
        "unset (TRL: on), `activation_memory` chooses: smaller micro-batches before recomputation, the result is the same",
        speedups=("activation_full",),
    ),
    "gradient_checkpointing_kwargs": honoured(),
    "activation_checkpointing": honoured(
        "the newer name of `gradient_checkpointing` in transformers", key="gradient_checkpointing"
    ),
    "activation_checkpointing_kwargs": honoured(
        "the newer name of `gradient_checkpointing_kwargs` in transformers", key="gradient_checkpointing_kwargs"
    ),
    "use_cache": superseded("training needs no key-value cache", default=False),
    "torch_empty_cache_steps": superseded("the allocator's cache is kept: emptying it only costs time here"),
    # The optimizer
    "learning_rate": honoured(),
    "lr_scheduler_type": honoured(),
    "lr_scheduler_kwargs": honoured(),
    "warmup_steps": honoured(),
    "optim": honoured(
        "`adamw_torch` is the same update as `adamw_torch_fused`: both take PyTorch's fused kernel unless"
        " `speedups: {fused_optimizer: off}` says otherwise"
    ),
    "optim_args": honoured(
        "every argument is applied; of one that transformers ignores it is said; `fused=False` is `fused_optimizer: off`",
        speedups=("fused_optimizer",),
    ),
    "weight_decay": honoured(),
    "adam_beta1": honoured(),
    "adam_beta2": honoured(),
    "adam_epsilon": honoured(),
    "optim_target_modules": refused(
        "it belongs to GaLore, APOLLO and LOMO, which are not among the supported optimizers",
        "remove it and choose an optimizer that `optim` lists",
    ),
    # Speed-ups
    "torch_compile": mapped("the decoder layers are compiled, each as a whole", "compiled_layers", default=False),
    "torch_compile_backend": mapped("giving it asks for `torch_compile`, as in transformers", "compiled_layers"),
    "torch_compile_mode": mapped("giving it asks for `torch_compile`, as in transformers", "compiled_layers"),
    "use_liger_kernel": mapped(
        "each of Liger's kernels of the layers is a speed-up of its own, seen to run or refused with the reason; its loss"
        " only by `liger_kernel_config`, as in TRL",
        *LIGER[:3],
        default=False,
    ),
    "liger_kernel_config": mapped("which of them `use_liger_kernel` asks for", *LIGER),
    # Logging
    "logging_strategy": honoured(),
    "logging_steps": honoured(),
    "logging_first_step": honoured(),
    "report_to": honoured(),
    "log_level": superseded("what a run prints is short and always the same", default="passive"),
    "log_level_replica": superseded(ONE_FOLDER, default="warning"),
    "log_on_each_node": superseded(ONE_FOLDER, default=True, silent=(True,)),
    "logging_nan_inf_filter": superseded(
        "a loss that is not finite is never replaced by another number: see `on_nonfinite_step`",
        default=True,
        silent=(False,),
    ),
    "include_num_input_tokens_seen": superseded(
        "real and label tokens are always counted and logged", default="no", silent=("no", False, None)
    ),
    "skip_memory_metrics": superseded("peak memory is always logged on GPUs", default=True),
    "trackio_space_id": refused(
        "metrics stay in Trackio's local project",
        "remove it, and publish the project with Trackio's own `trackio sync` command",
    ),
    "trackio_bucket_id": refused("metrics stay in Trackio's local project", "remove it"),
    "trackio_static_space_id": refused("no Space is made for you at the end of a run", "remove it"),
    "debug": refused(
        "transformers' debug modes hook its own trainer",
        "remove it; a step that is not finite is caught anyway: see `on_nonfinite_step`",
        default="",
    ),
    # Evaluation
    "eval_strategy": honoured(),
    "eval_steps": honoured(),
    "eval_delay": honoured(),
    "eval_on_start": honoured(),
    "load_best_model_at_end": honoured(),
    "metric_for_best_model": honoured(),
    "greater_is_better": honoured(),
    "per_device_eval_batch_size": superseded(
        "the evaluation loss is the mean over all label tokens, which no batch size changes", default=8
    ),
    "prediction_loss_only": superseded("evaluation never keeps predictions", default=False),
    "eval_do_concat_batches": superseded("evaluation never keeps predictions", default=True, silent=(True,)),
    "eval_use_gather_object": superseded(
        "evaluation sums numbers over processes and gathers no objects", default=False
    ),
    "eval_accumulation_steps": superseded("evaluation never keeps predictions"),
    "include_for_metrics": refused(NO_COMPUTE_METRICS, METRICS_INSTEAD, default=[]),
    "batch_eval_metrics": refused(NO_COMPUTE_METRICS, METRICS_INSTEAD, default=False),
    "label_names": superseded("labels are made from the rows; the model's own argument name is used"),
    # Saving
    "save_strategy": honoured(),
    "save_steps": honoured(),
    "save_total_limit": honoured(),
    "save_only_model": honoured(),
    "save_on_each_node": superseded(ONE_FOLDER, default=False),
    "enable_jit_checkpoint": superseded(
        "SIGTERM always saves a checkpoint and leaves", default=False, silent=(True, False)
    ),
    "ignore_data_skip": refused(
        "resuming is an index into the plan and costs nothing; ignoring it would train rows twice",
        "remove it",
        default=False,
    ),
    "restore_callback_states_from_checkpoint": refused(
        "the best metric and early stopping are always restored; callbacks of your own keep their own state",
        "remove it, and store a callback's state from the callback",
        default=False,
    ),
    "push_to_hub": honoured(),
    "hub_token": honoured("never printed and never written to the run folder"),
    "hub_private_repo": honoured(),
    "hub_model_id": honoured(),
    "hub_strategy": honoured("`end` and `every_save`; `checkpoint` and `all_checkpoints` are refused"),
    "hub_revision": honoured(),
    "hub_always_push": refused(
        "a save during an upload is left out, and said; the final model is always pushed", "remove it", default=False
    ),
    # Loaders
    "dataloader_num_workers": superseded(NO_LOADER, default=0),
    "dataloader_pin_memory": superseded(PINNED, default=True, silent=(True,)),
    "dataloader_persistent_workers": superseded(NO_LOADER, default=False),
    "dataloader_prefetch_factor": superseded(NO_LOADER),
    "dataloader_multiprocessing_context": superseded(NO_LOADER),
    "dataloader_in_order": superseded(NO_LOADER, default=True, silent=(True,)),
    "remove_unused_columns": superseded(
        "columns that no format uses never reach the model",
        default=True,
        silent=(True,),
    ),
    # Several processes
    "accelerator_config": refused(
        "it configures Accelerate's loaders, which are not used",
        "remove it; for `split_batches` set `global_batch_size`",
        noop=_is_default_accelerator_config,
    ),
    "parallelism_config": refused(LATER_SHARDING, WHOLE_MODELS),
    "ddp_find_unused_parameters": superseded("a gradient that is missing on some processes counts as zeros there"),
    "ddp_bucket_cap_mb": superseded(OWN_SUM),
    "ddp_broadcast_buffers": superseded(OWN_SUM),
    "ddp_static_graph": superseded(OWN_SUM),
    "ddp_backend": superseded("NCCL between GPUs, gloo between CPUs"),
    "ddp_timeout": honoured("of progress of any kind, not of one collective"),
    "local_rank": superseded("the launcher says which process this is", default=-1, silent=(-1, 0)),
    "fsdp": refused(LATER_SHARDING, WHOLE_MODELS, silent=(None, False, "", "no", [])),
    "fsdp_config": refused(LATER_SHARDING, WHOLE_MODELS),
    "deepspeed": refused(LATER_SHARDING, WHOLE_MODELS),
}
