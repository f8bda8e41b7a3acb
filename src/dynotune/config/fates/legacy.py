"""Names that older versions of transformers and TRL had: renamed where they renamed them, else given a fate."""

from collections.abc import Mapping

from dynotune.config.fates.fate import Fate, refused, superseded
from dynotune.config.fates.training import LATER_SHARDING, WHOLE_MODELS

RENAMED: Mapping[str, str] = {
    "evaluation_strategy": "eval_strategy",
    "max_seq_length": "max_length",
    "torch_dtype": "dtype",
    "no_cuda": "use_cpu",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "push_to_hub_token": "hub_token",
    "push_to_hub_model_id": "hub_model_id",
    "peft_lora_r": "lora_r",
    "peft_lora_alpha": "lora_alpha",
    "model_name": "model_name_or_path",
    "use_liger": "use_liger_kernel",
    "torchdynamo": "torch_compile_backend",
    "warmup_ratio": "warmup_steps",
}
"""Old name to new name. The value means the same; `warmup_steps` takes a share below 1, which `warmup_ratio` was."""

LEGACY: Mapping[str, Fate] = {
    "group_by_length": refused(
        "it changes which examples share a step",
        "remove it; nothing is padded, so there is nothing to save",
        default=False,
    ),
    "logging_dir": superseded("metrics stand in `metrics.jsonl` of the run folder, TensorBoard's files beside it"),
    "save_safetensors": superseded("weights are always saved as safetensors", default=True, silent=(True,)),
    "dataset_batch_size": superseded("rows are tokenised in batches of a fixed size"),
    "num_of_sequences": superseded("it belonged to an old form of packing"),
    "chars_per_token": superseded("it belonged to an old form of packing"),
    "include_tokens_per_second": superseded("real tokens a second are always logged", default=False),
    "include_inputs_for_metrics": superseded("evaluation keeps no inputs", default=False),
    "half_precision_backend": superseded("autocast is the only backend", default="auto", silent=("auto", "cpu_amp")),
    "fp16_backend": superseded("autocast is the only backend", default="auto"),
    "fp16_opt_level": superseded("Apex is not used", default="O1"),
    "jit_mode_eval": refused("TorchScript is not used", "remove it", default=False),
    "use_ipex": refused("Intel's extension is not used", "remove it", default=False),
    "use_mps_device": superseded("the device is found by itself", default=False),
    "ray_scope": superseded("there is no hyper-parameter search", default="last"),
    "past_index": refused("models with a past index are not supported", "remove it", default=-1, silent=(-1,)),
    "mp_parameters": refused("SageMaker's model parallelism is not used", "remove it", default=""),
    "tpu_num_cores": refused("TPUs are not supported", "remove it"),
    "tpu_metrics_debug": refused("TPUs are not supported", "remove it", default=False),
    "fsdp_min_num_params": refused(LATER_SHARDING, WHOLE_MODELS, silent=(0, None)),
    "fsdp_transformer_layer_cls_to_wrap": refused(LATER_SHARDING, WHOLE_MODELS),
    "split_batches": refused("it divides batches over processes", "set `global_batch_size`", default=False),
    "dispatch_batches": superseded("every process works out the plan and takes its own share"),
    "per_gpu_eval_batch_size": superseded("the evaluation loss does not depend on a batch size"),
    "push_to_hub_organization": refused(
        "the organisation is part of the repository's name", "write it in `hub_model_id`"
    ),
}
