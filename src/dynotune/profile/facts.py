"""What a live model, an optimizer and a machine say of themselves, for the record. Whoever made them."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynotune.measure.calibration import tf32_of
from dynotune.profile.record import Environment, Memory, ModelFacts, WeightGroup

if TYPE_CHECKING:
    import torch
    from torch import nn

VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "CUDA_LAUNCH_BLOCKING", "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF", "NCCL_P2P_DISABLE", "NVIDIA_TF32_OVERRIDE", "CUDA_DEVICE_MAX_CONNECTIONS",
)  # fmt: skip
"""That bear on speed, and whose values say nothing of the user."""


def model_facts(model: "nn.Module", asked_precision: str = "", attention: str = "") -> ModelFacts:
    """attention: what really computes it, where that is not what the model's configuration says."""
    groups = Counter[tuple[str, str, bool]]()
    for p in model.parameters():
        groups[str(p.device), str(p.dtype).removeprefix("torch."), p.requires_grad] += p.numel()
    base: Any = model.get_base_model() if hasattr(model, "peft_config") else model  # type: ignore[operator]
    config: Any = getattr(base, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    heads = _int(text, "num_attention_heads")
    hidden = _int(text, "hidden_size")
    head_dim = _int(text, "head_dim") or (hidden // heads if hidden and heads else None)
    quantised = getattr(getattr(config, "quantization_config", None), "quant_method", "")
    device_map = getattr(base, "hf_device_map", None) or {}
    return ModelFacts(
        name=type(base).__name__,
        weights=tuple(WeightGroup(*key, parameters=n) for key, n in groups.most_common()),
        asked_precision=asked_precision,
        layers=_int(text, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        head_dim=head_dim,
        vocabulary=_int(text, "vocab_size"),
        adapter_ranks=_ranks(getattr(model, "peft_config", {})),
        head_places=tuple(_head_places(model, base)),
        attention=attention or str(getattr(config, "_attn_implementation", "") or ""),
        quantised=str(getattr(quantised, "value", quantised)),
        checkpointing=any(getattr(one, "gradient_checkpointing", False) for one in model.modules()),
        device_map={str(name): str(where) for name, where in device_map.items()},
    )


def places_of(model: "nn.Module", head_places: Iterable[str]) -> list[str]:
    """Modules worth a range of their own in a trace: attention, the head, adapters."""
    names = [name for name, module in model.named_modules() if name and "Attention" in type(module).__name__]
    adapters = [name for name, module in model.named_modules() if ".lora_" in name and hasattr(module, "weight")]
    return [*names, *adapters, *head_places]


def optimizer_name(optimizer: Any) -> str:
    """`AdamW (fused)`."""
    inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
    group = inner.param_groups[0] if getattr(inner, "param_groups", None) else {}
    if group.get("fused"):
        how = " (fused)"
    elif "foreach" not in group:
        how = ""
    else:
        on_gpu = any(p.is_cuda for p in group.get("params", ()))
        # PyTorch's default is foreach where all parameters are on a GPU.
        loops = group["foreach"] is False or (group["foreach"] is None and not on_gpu)
        how = " (for-loop)" if loops else " (foreach)"
    return type(inner).__name__ + how


def environment_of(
    device: "torch.device",
    *,
    world: int = 1,
    loader_workers: int | None = None,
    pinned: bool | None = None,
    paths: Mapping[str, Path] | None = None,
) -> Environment:
    """paths: by what lies there, folders or files whose kind of file system is to be told."""
    from dataclasses import asdict

    import torch

    from dynotune.speedups.machine import machine_of

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Environment(
        device="cuda" if device.type == "cuda" else "cpu",
        machine=asdict(machine_of(device)),
        world=world,
        gpus=torch.cuda.device_count(),
        cores=cores,
        threads=torch.get_num_threads(),
        tf32=tf32_of(device),
        loader_workers=loader_workers,
        pinned=pinned,
        file_systems={what: kind for what, path in (paths or {}).items() if (kind := file_system(path))},
        variables=tuple(f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ),
    )


def file_system(path: Path) -> str:
    """The kind of file system that a path lies on (`ext4`, `nfs4`); empty where that cannot be told."""
    import psutil

    try:
        place = path.resolve()
        mounts = {one.mountpoint: one.fstype for one in psutil.disk_partitions(all=True)}
    except (OSError, RuntimeError):
        return ""
    return next((mounts[str(folder)] for folder in (place, *place.parents) if str(folder) in mounts), "")


def memory_of(device: "torch.device") -> Memory:
    """Since the peak was reset last; empty on the CPU."""
    import torch

    if device.type != "cuda":
        return Memory()
    stats = torch.cuda.memory_stats(device)
    return Memory(
        peak_allocated=torch.cuda.max_memory_allocated(device),
        peak_reserved=torch.cuda.max_memory_reserved(device),
        total=torch.cuda.get_device_properties(device).total_memory,
        retries=int(stats.get("num_alloc_retries", 0)),
    )


def _int(config: Any, name: str) -> int | None:
    value = getattr(config, name, None)
    return int(value) if isinstance(value, int) else None


def _ranks(adapters: Mapping[str, Any]) -> tuple[int, ...]:
    found = set[int]()
    for one in adapters.values():
        found |= {int(one.r)} if isinstance(getattr(one, "r", None), int) else set()
        found |= {int(rank) for rank in (getattr(one, "rank_pattern", None) or {}).values()}
    return tuple(sorted(found))


def _head_places(model: Any, base: Any) -> list[str]:
    head = base.get_output_embeddings() if hasattr(base, "get_output_embeddings") else None
    return [name for name, module in model.named_modules() if head is not None and module is head]
