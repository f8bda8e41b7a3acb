"""Keys that releases of transformers, TRL, Axolotl and LLaMA-Factory renamed or took out.

Each line was checked against the sources of the release that is named and of an earlier one that still took the key; where
not every release between was looked at, the earliest that was seen without it is named.
"""

from collections.abc import Mapping

from dynotune.audit.schema.keys import Moved

_T, _TRL, _A, _LF = "transformers", "trl", "axolotl", "llamafactory"

TRANSFORMERS: Mapping[str, Moved] = {
    "evaluation_strategy": Moved(_T, "4.51", "eval_strategy"),
    "no_cuda": Moved(_T, "5.0", "use_cpu"),
    "per_gpu_train_batch_size": Moved(_T, "5.0", "per_device_train_batch_size"),
    "per_gpu_eval_batch_size": Moved(_T, "5.0", "per_device_eval_batch_size"),
    "push_to_hub_token": Moved(_T, "5.0", "hub_token"),
    "push_to_hub_model_id": Moved(_T, "5.0", "hub_model_id"),
    "torchdynamo": Moved(_T, "5.0", "torch_compile_backend"),
    "save_safetensors": Moved(_T, "5.0", text="Weights are always saved as safetensors"),
    "overwrite_output_dir": Moved(_T, "5.0", text="Nothing is overwritten without it: remove it"),
    "adafactor": Moved(_T, "5.0", text="Write `optim: adafactor`"),
    "half_precision_backend": Moved(_T, "5.0", text="Remove it"),
    "fp16_backend": Moved(_T, "5.0", text="Remove it"),
    "fp16_opt_level": Moved(_T, "5.0", text="Remove it"),
    "include_inputs_for_metrics": Moved(_T, "5.0", text="Write `include_for_metrics: [inputs]`"),
    "include_tokens_per_second": Moved(_T, "5.0", text="Write `include_num_input_tokens_seen`"),
    "jit_mode_eval": Moved(_T, "5.0", text="Remove it"),
    "use_ipex": Moved(_T, "4.57", text="Remove it"),
    "use_mps_device": Moved(_T, "5.0", text="The device is found by itself: remove it"),
    "use_legacy_prediction_loop": Moved(_T, "5.0", text="Remove it"),
    "past_index": Moved(_T, "5.0", text="Remove it"),
    "mp_parameters": Moved(_T, "5.0", text="Remove it"),
    "ray_scope": Moved(_T, "5.0", text="Remove it"),
    "tpu_num_cores": Moved(_T, "5.0", text="Remove it"),
    "tpu_metrics_debug": Moved(_T, "5.0", text="Write `debug: tpu_metrics_debug`"),
    "fsdp_min_num_params": Moved(_T, "5.0", text="Write it inside `fsdp_config`"),
    "fsdp_transformer_layer_cls_to_wrap": Moved(_T, "5.0", text="Write it inside `fsdp_config`"),
    "push_to_hub_organization": Moved(_T, "5.0", text="Write the organisation in `hub_model_id`"),
    "group_by_length": Moved(_T, "5.2", text="Write `train_sampling_strategy: group_by_length`"),
    "warmup_ratio": Moved(_T, "5.15", text="Write the share as `warmup_steps`, which takes one below 1"),
    "logging_dir": Moved(_T, "5.15", text="Set the variable `TENSORBOARD_LOGGING_DIR`"),
    "dispatch_batches": Moved(_T, "4.51", text="Write it inside `accelerator_config`"),
    "split_batches": Moved(_T, "4.51", text="Write it inside `accelerator_config`"),
    "gradient_checkpointing": Moved(_T, "5.23", "activation_checkpointing"),
    "gradient_checkpointing_kwargs": Moved(_T, "5.23", "activation_checkpointing_kwargs"),
}

TRL: Mapping[str, Moved] = {
    "max_seq_length": Moved(_TRL, "0.20", "max_length"),
    "use_liger": Moved(_TRL, "0.18", "use_liger_kernel"),
    "torch_dtype": Moved(_TRL, "0.27", "dtype"),
    "dataset_batch_size": Moved(_TRL, "0.18", text="Remove it"),
    "num_of_sequences": Moved(_TRL, "0.18", text="It belonged to an old form of packing: remove it"),
    "chars_per_token": Moved(_TRL, "0.18", text="It belonged to an old form of packing: remove it"),
    "max_prompt_length": Moved(_TRL, "0.29", text="Rows are cut to `max_length` as a whole"),
    "max_completion_length": Moved(_TRL, "0.29", text="Rows are cut to `max_length` as a whole"),
    "max_target_length": Moved(_TRL, "0.15", text="Rows are cut to `max_length` as a whole"),
    "is_encoder_decoder": Moved(_TRL, "0.15", text="Remove it"),
    "generate_during_eval": Moved(_TRL, "0.29", text="Remove it"),
    "label_pad_token_id": Moved(_TRL, "0.29", text="Remove it"),
    "padding_value": Moved(_TRL, "0.26", text="Set the tokenizer's padding token"),
    "rpo_alpha": Moved(_TRL, "0.29", text="Write `loss_type: [sigmoid, sft]` with `loss_weights`"),
    "reference_free": Moved(_TRL, "0.29", text="Remove it"),
    "force_use_ref_model": Moved(_TRL, "0.29", text="Remove it"),
    "ref_model_init_kwargs": Moved(_TRL, "0.29", text="`model_init_kwargs` serves both models"),
    "use_logits_to_keep": Moved(_TRL, "0.29", text="Remove it"),
    "use_num_logits_to_keep": Moved(_TRL, "0.17", text="Remove it"),
    "base_model_attribute_name": Moved(_TRL, "0.29", text="Remove it"),
    "model_adapter_name": Moved(_TRL, "0.29", text="Remove it"),
    "ref_adapter_name": Moved(_TRL, "0.29", text="Remove it"),
    "use_liger_loss": Moved(_TRL, "0.28", "use_liger_kernel"),
    "gradient_checkpointing_use_reentrant": Moved(
        _TRL, "0.27", text="Write `gradient_checkpointing_kwargs: {use_reentrant: false}`"
    ),
}

TRANSFORMERS_CALLS: Mapping[str, Moved] = {"tokenizer": Moved(_T, "5.0", "processing_class")}
"""Arguments of `Trainer` and `Seq2SeqTrainer`: 4.57.6 still takes it by a decorator in trainer.py, 5.0.0 does not."""

LATER_CALLS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "trl": {"processing_class": ("0.12", "tokenizer")},
    "transformers": {"processing_class": ("4.46", "tokenizer")},
}
"""Arguments of trainers that came with a release, and what they were called before: the signatures in TRL 0.11.4 and 0.12.0,
and in transformers 4.45.2 and 4.46.0."""

TRAINER_CALLS: Mapping[str, Moved] = {
    "tokenizer": Moved(_TRL, "0.16", "processing_class"),
    **{
        name: Moved(_TRL, "0.13", text=f"Give it to the configuration{', as ' + new if new else ''}")
        for name, new in (
            ("max_seq_length", "`max_length` (`max_seq_length` before 0.20)"),
            ("dataset_text_field", ""),
            ("packing", ""),
            ("dataset_num_proc", ""),
            ("neftune_noise_alpha", ""),
            ("beta", ""),
            ("max_length", ""),
            ("loss_type", ""),
            ("label_smoothing", ""),
            ("precompute_ref_log_probs", ""),
            ("model_init_kwargs", ""),
            ("dataset_kwargs", ""),
            ("eval_packing", ""),
            ("max_prompt_length", ""),
            ("truncation_mode", ""),
            ("disable_dropout", ""),
            ("generate_during_eval", ""),
            ("ref_model_init_kwargs", ""),
        )
    },
}
"""Arguments of TRL's SFTTrainer and DPOTrainer themselves. `tokenizer`: 0.12.0 to 0.15.2 take both names, by a
decorator in trainer/sft_trainer.py and dpo_trainer.py that 0.16.0 has no more; of the others, the signatures in 0.12.2,
which takes them with a warning, and in 0.13.0, which does not."""

OF_PAIRS = frozenset(
    {
        "beta", "max_prompt_length", "max_completion_length", "max_target_length", "precompute_ref_log_probs",
        "precompute_ref_batch_size", "ref_model_init_kwargs", "reference_free", "force_use_ref_model", "rpo_alpha",
        "generate_during_eval", "sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps", "f_divergence_type",
        "ld_alpha",
    }
)  # fmt: skip
"""Keys of TRL's DPOConfig and its like that the classes below have had in no release: 0.11.4, 0.19.1 and 1.16 were looked
at."""

OF_TEXTS = frozenset(
    {
        "max_seq_length", "packing", "packing_strategy", "eval_packing", "dataset_text_field", "assistant_only_loss",
        "completion_only_loss", "num_of_sequences", "chars_per_token", "dataset_kwargs", "dataset_batch_size",
    }
)  # fmt: skip
"""Keys of TRL's SFTConfig that DPOConfig has had in no release: 0.11.4, 0.12.2, 0.15.2, 0.17.0, 0.19.1 and 1.16 were looked
at."""

WITHOUT_PAIRS = frozenset({"SFTConfig", "RewardConfig"})

NEWEST_UNDER_LLAMA_FACTORY = (("0.9.1", "4.46.1"), ("0.9.2", "4.49.0"), ("0.9.3", "4.52.4"), ("0.9.4", "4.57.1"))
"""Releases of LLaMA-Factory, and the newest transformers that each asks for, by the metadata of its packages."""

OLDEST_UNDER_LLAMA_FACTORY = "4.55"
"""The same of 0.9.5, whose newest is 5.6: what is gone from this one is gone from all."""

LLAMA_FACTORY: Mapping[str, Moved] = {
    "name_module_trainable": Moved(_LF, "0.7.1", "freeze_trainable_modules"),
    "num_layer_trainable": Moved(_LF, "0.7.1", "freeze_trainable_layers"),
    "dpo_beta": Moved(_LF, "0.8.0", "pref_beta"),
    "dpo_loss": Moved(_LF, "0.8.0", "pref_loss"),
    "dpo_ftx": Moved(_LF, "0.8.0", "pref_ftx"),
    "orpo_beta": Moved(_LF, "0.8.0", "pref_beta"),
    "reserved_label_len": Moved(_LF, "0.8.3", text="Rows are cut to `cutoff_len` as a whole: remove it"),
    "split": Moved(_LF, "0.8.3", text="Write it at the data set in `dataset_info.json`"),
    "vllm_dtype": Moved(_LF, "0.8.3", "infer_dtype"),
    "visual_inputs": Moved(_LF, "0.9.0", text="A multimodal model is known by its configuration: remove it"),
    "image_resolution": Moved(_LF, "0.9.2", "image_max_pixels"),
    "video_resolution": Moved(_LF, "0.9.2", "video_max_pixels"),
    "image_dir": Moved(_LF, "0.9.2", "media_dir"),
    "train_mm_proj_only": Moved(_LF, "0.9.2", text="Write `freeze_vision_tower` and `freeze_language_model`"),
    "new_special_tokens": Moved(_LF, "0.9.3", "add_special_tokens"),
    "use_cache": Moved(_LF, "0.9.4", "use_kv_cache"),
}
"""Fields of the classes in `hparams` of llmtuner 0.6.2 and of LLaMA-Factory 0.7.1, 0.8.0, 0.8.3, 0.9.0 to 0.9.4."""

AXOLOTL: Mapping[str, Moved] = {
    "max_packed_sequence_len": Moved(_A, "0.19", text="Write `sequence_len` and `sample_packing: true`"),
    "rope_scaling": Moved(_A, "0.19", text="Write it inside `overrides_of_model_config`"),
    "noisy_embedding_alpha": Moved(_A, "0.19", "neftune_noise_alpha"),
    "dpo_beta": Moved(_A, "0.19", "rl_beta"),
    "evaluation_strategy": Moved(_A, "0.19", "eval_strategy"),
    "rpo_alpha": Moved(_A, "0.19", text="Remove it"),
    "s2_attention": Moved(_A, "0.19", text="Shifted-sparse attention is no longer supported: remove it"),
    "dpo_norm_loss": Moved(_A, "0.19", text="Remove it"),
    "dpo_generate_during_eval": Moved(_A, "0.19", text="Remove it"),
    "dpo_use_logits_to_keep": Moved(_A, "0.19", text="Remove it"),
    "flash_attn_rms_norm": Moved(_A, "0.19", text="Remove it"),
}

AXOLOTL_TYPES: Mapping[str, Moved] = {
    "sharegpt": Moved(_A, "0.9.2", text="Write `type: chat_template`, with `message_property_mappings`"),
}
"""Values of `type` of a data set, by what they begin with: `deprecate_sharegpt_datasets` of utils/schemas raises in 0.9.2
and 0.12.2."""
