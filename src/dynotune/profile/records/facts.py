"""What a live model, an optimizer and a machine say of themselves: the record's own fields, as plain values for JSON.

Whoever made them. The process of somebody else's script may have none of our packages, so nothing is imported here that
PyTorch does not bring; `record.of_plain` makes the record's parts of it.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dynotune.model.product_settings import tf32_of
from dynotune.mounts import kind_of
from dynotune.speedups.machine import machine_of

VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "CUDA_LAUNCH_BLOCKING", "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF", "NCCL_P2P_DISABLE", "NVIDIA_TF32_OVERRIDE", "CUDA_DEVICE_MAX_CONNECTIONS",
    "TORCH_COMPILE_DISABLE",
)  # fmt: skip
"""That bear on speed, and whose values say nothing of the user."""

Groups = Counter[tuple[str, str, bool]]
"""Parameters by device, precision and whether they are trained."""


def weight_groups(model: nn.Module) -> Groups:
    groups = Groups()
    for one in model.parameters():
        groups[str(one.device), precision(one.dtype), one.requires_grad] += one.numel()
    return groups


def inner_model(roots: Sequence[nn.Module]) -> nn.Module | None:
    """The model of transformers in the roots, or the first root. None without any."""
    for root in roots:
        for module in root.modules():
            if any(kind.__name__ == "PreTrainedModel" for kind in type(module).__mro__):
                return module
    return unwrapped(roots[0]) if roots else None


def unwrapped(module: nn.Module) -> nn.Module:
    """Without what `torch.compile` and DDP put around it."""
    for inside in ("_orig_mod", "module"):
        inner = getattr(module, inside, None)
        if isinstance(inner, nn.Module) and type(module).__module__.startswith("torch."):
            return unwrapped(inner)
    return module


def model_facts(
    whole: nn.Module, model: nn.Module, traced: nn.Module, asked_precision: str = "", attention: str = ""
) -> dict[str, Any]:
    """`ModelFacts`. whole: with all that lies around `model`, adapters too. traced: of which a trace is taken, and in which
    places are named. attention: what really computes it, where that is not what the configuration says."""
    config = _text_config(model)
    heads, hidden = _number(config, "num_attention_heads"), _number(config, "hidden_size")
    return {
        "name": type(model).__name__,
        "weights": [
            {"device": device, "dtype": dtype, "trained": trained, "parameters": count}
            for (device, dtype, trained), count in weight_groups(whole).most_common()
        ],
        "asked_precision": asked_precision,
        "layers": _number(config, "num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": _kv_heads(config, heads),
        "head_dim": _number(config, "head_dim") or (hidden // heads if hidden and heads else None),
        "vocabulary": _number(config, "vocab_size"),
        "adapter_ranks": sorted(_ranks(whole)),
        "head_places": _heads(traced, model),
        "attention": attention or str(getattr(config, "_attn_implementation", "") or ""),
        "quantised": _quantised(model),
        "checkpointing": any(getattr(one, "gradient_checkpointing", False) is True for one in whole.modules()),
        "device_map": {str(name): str(where) for name, where in (getattr(model, "hf_device_map", None) or {}).items()},
    }


def _text_config(model: nn.Module) -> Any:
    config = getattr(model, "config", None)
    text = getattr(config, "get_text_config", None)
    return text() if callable(text) else config


def _kv_heads(config: Any, heads: int | None) -> int | None:
    """Of keys and values: as many as of queries where the configuration knows of no others. Falcon's counts are not what it
    has under `multi_query`: one is the least."""
    if getattr(config, "multi_query", False) is True:
        return 1
    return _number(config, "num_key_value_heads") or heads


def _ranks(model: nn.Module) -> set[int]:
    """Of the adapters that are in the model."""
    found = set()
    for module in model.modules():
        ranks = getattr(module, "r", None)
        if isinstance(ranks, dict) and hasattr(module, "lora_A"):
            found |= {rank for rank in ranks.values() if isinstance(rank, int)}
    return found


def _heads(traced: nn.Module, model: nn.Module) -> list[str]:
    get = getattr(model, "get_output_embeddings", None)
    head = get() if callable(get) else None
    return [name for name, module in traced.named_modules() if head is not None and module is head]


def _quantised(model: nn.Module) -> str:
    if getattr(model, "is_loaded_in_4bit", False) is True:
        return "4-bit"
    if getattr(model, "is_loaded_in_8bit", False) is True:
        return "8-bit"
    method = getattr(getattr(getattr(model, "config", None), "quantization_config", None), "quant_method", "")
    return str(getattr(method, "value", method))


def optimizer_name(optimizer: Any) -> str:
    """`AdamW (fused)`."""
    inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
    how = _how(getattr(inner, "param_groups", None) or [])
    return f"{type(inner).__name__} ({how})" if how else type(inner).__name__


def _how(groups: Sequence[Mapping[str, Any]]) -> str:
    """As PyTorch decides where nothing was asked: `foreach` where all weights are on a GPU."""
    group = next(iter(groups), {})
    if "foreach" not in group and "fused" not in group:
        return ""
    if group.get("fused"):
        return "fused"
    foreach = group.get("foreach")
    if foreach is None:
        tensors = [one for each in groups for one in each.get("params", ())]
        foreach = bool(tensors) and all(one.is_cuda for one in tensors)
    return "foreach" if foreach else "for-loop"


def environment_of(
    device: torch.device,
    *,
    world: int = 1,
    loader_workers: int | None = None,
    pinned: bool | None = None,
    paths: Mapping[str, Path] | None = None,
) -> dict[str, Any]:
    """`Environment`. paths: by what lies there, folders or files whose kind of file system is to be told."""
    return {
        "device": "cuda" if device.type == "cuda" else "cpu",
        "machine": asdict(machine_of(device)),
        "world": world,
        "gpus": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "tf32": tf32_of(device),
        "loader_workers": loader_workers,
        "pinned": pinned,
        "file_systems": {what: kind for what, path in (paths or {}).items() if (kind := kind_of(path))},
        "variables": [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ],
    }


def memory_of(device: torch.device) -> dict[str, Any]:
    """`Memory`, since the peak was reset last; empty on the CPU."""
    if device.type != "cuda":
        return {}
    stats = torch.cuda.memory_stats(device)
    return {
        "peak_allocated": torch.cuda.max_memory_allocated(device),
        "peak_reserved": torch.cuda.max_memory_reserved(device),
        "total": torch.cuda.get_device_properties(device).total_memory,
        "retries": int(stats.get("num_alloc_retries", 0)),
    }


def precision(dtype: torch.dtype) -> str:
    """`bfloat16`."""
    return str(dtype).removeprefix("torch.")


def _number(config: Any, name: str) -> int | None:
    value = getattr(config, name, None)
    return value if isinstance(value, int) else None


def places_of(model: nn.Module, head_places: Iterable[str]) -> list[str]:
    """Modules worth a range of their own in a trace of ours: attention, the head, adapters."""
    names = [name for name, module in model.named_modules() if name and "Attention" in type(module).__name__]
    adapters = [name for name, module in model.named_modules() if ".lora_" in name and hasattr(module, "weight")]
    return [*names, *adapters, *head_places]
