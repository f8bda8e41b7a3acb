"""A key of a DeepSpeed file that is a known one but for a slip."""

import difflib
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_WHOLE = """
train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps optimizer scheduler fp16 bf16 bfloat16 amp
gradient_clipping zero_optimization zero_allow_untested_optimizer zero_force_ds_cpu_optimizer steps_per_print
wall_clock_breakdown memory_breakdown dump_state prescale_gradients gradient_predivide_factor sparse_gradients
communication_data_type flops_profiler activation_checkpointing sparse_attention data_efficiency curriculum_learning
tensorboard wandb csv_monitor comms_logger elasticity autotuning compression_training checkpoint data_types aio nebula
hybrid_engine pipeline disable_allgather eigenvalue progressive_layer_drop load_universal_checkpoint compile
tensor_parallel torch_autocast
"""
_ZERO = """
stage contiguous_gradients reduce_scatter reduce_bucket_size allgather_partitions allgather_bucket_size overlap_comm
load_from_fp32_weights elastic_checkpoint offload_param offload_optimizer sub_group_size cpu_offload cpu_offload_params
cpu_offload_use_pin_memory stage3_prefetch_bucket_size stage3_param_persistence_threshold
stage3_model_persistence_threshold stage3_max_live_parameters stage3_max_reuse_distance
stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save ignore_unused_parameters
round_robin_gradients zero_hpz_partition_size zero_quantized_weights zero_quantized_gradients mics_shard_size
memory_efficient_linear
prefetch_bucket_size param_persistence_threshold model_persistence_threshold max_live_parameters max_reuse_distance
gather_16bit_weights_on_model_save module_granularity_threshold stage3_module_granularity_threshold
use_all_reduce_for_fetch_params stage3_use_all_reduce_for_fetch_params allgather_sequential stage3_allgather_sequential
partition_stream_chunk_size stage3_partition_stream_chunk_size use_multi_rank_bucket_allreduce cpu_offload_param
legacy_stage1 zero_quantized_nontrainable_weights zeropp_loco_param mics_hierarchical_params_gather
pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings enable_sanity_checks
save_muon_momentum_buffer_in_memory leaf_module zenflow
"""
KNOWN: Mapping[str, frozenset[str]] = {"": frozenset(_WHOLE.split()), "zero_optimization": frozenset(_ZERO.split())}
"""Keys of a file, and of its `zero_optimization`, that DeepSpeed's page on its configuration has. What is near none of them
may be one of another release."""

_LIKE = 0.88

_OTHERS: Mapping[str, Mapping[str, str]] = {
    "": {
        **dict.fromkeys(
            (
                "gradient_clip",
                "grad_clip",
                "clip_grad",
                "clip_grad_norm",
                "max_grad_norm",
                "gradient_clip_val",
                "clip_gradients",
            ),
            "gradient_clipping",
        ),
        **dict.fromkeys(
            ("micro_batch_size", "train_micro_batch_size", "micro_batch_size_per_gpu", "per_device_train_batch_size"),
            "train_micro_batch_size_per_gpu",
        ),
        **dict.fromkeys(("global_batch_size", "batch_size"), "train_batch_size"),
        **dict.fromkeys(
            ("gradient_accumulation", "grad_accum_steps", "accumulation_steps"), "gradient_accumulation_steps"
        ),
        **dict.fromkeys(("zero", "zero_optimizer", "zero_config"), "zero_optimization"),
        **dict.fromkeys(("lr_scheduler", "scheduler_config"), "scheduler"),
        "log_every": "steps_per_print",
        "logging_steps": "steps_per_print",
    },
    "zero_optimization": {
        "zero_stage": "stage",
        "offload_optimizer_device": "offload_optimizer",
        "offload_param_device": "offload_param",
        "optimizer_offload": "offload_optimizer",
        "param_offload": "offload_param",
        "overlap_communication": "overlap_comm",
        "zero3_save_16bit_model": "stage3_gather_16bit_weights_on_model_save",
    },
}
"""What others call it, accelerate's plugin and trainers among them."""


def misspelt_of_deepspeed(project: Project) -> Iterator[Said]:
    named = {value.rpartition("/")[2] for job in project.jobs if isinstance(value := job.get("deepspeed"), str)}
    for config in project.configs:
        if config.kind == "deepspeed" or config.file.rpartition("/")[2] in named:
            for room, known in KNOWN.items():
                yield from _in_a_room(config, room, known)


def _in_a_room(config: ConfigFile, room: str, known: frozenset[str]) -> Iterator[Said]:
    held = config.values.get(room) if room else config.values
    for key in held if isinstance(held, Mapping) else ():
        if not isinstance(key, str) or key in known:
            continue
        meant = _OTHERS.get(room, {}).get(key)
        close = [meant] if meant else difflib.get_close_matches(key, sorted(known), 1, _LIKE)
        if not close or close[0] in (held or {}):
            continue
        path = f"{room}.{key}" if room else key
        yield Finding(
            f"`{path}` is no key of DeepSpeed's, and does nothing there. Did you mean `{close[0]}`?",
            place=config.places.get(path, Place(config.file, key=key)),
            evidence=Evidence(Level.TEXT, {"key": path, "near": close[0]}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL, f"Call it `{close[0]}`.", accuracy="what the key asks for starts to happen"
            ),
        )
