"""What there is to know of the script's model, optimizers, loader and machine, as the record's own fields, for JSON."""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from dynotune.measure.calibration import tf32_of
from dynotune.speedups.machine import machine_of

SPEED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_LAUNCH_BLOCKING", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
         "TOKENIZERS_PARALLELISM", "TORCH_COMPILE_DISABLE", "NVIDIA_TF32_OVERRIDE")  # fmt: skip
"""Variables that bear on it."""

PRECISIONS = {"bf16": "bfloat16", "fp16": "float16"}


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


def model_facts(roots: Sequence[nn.Module], autocast: str, trainer: Any | None) -> dict[str, Any]:
    """autocast: its precision around the model's calls."""
    model = inner_model(roots)
    if model is None:
        return {}
    config = _text_config(model)
    groups = Counter[tuple[str, str, bool]]()
    for parameter in roots[0].parameters():
        groups[str(parameter.device), _name(parameter.dtype), parameter.requires_grad] += parameter.numel()
    heads, hidden = _number(config, "num_attention_heads"), _number(config, "hidden_size")
    return {
        "name": type(model).__name__,
        "weights": [
            {"device": device, "dtype": dtype, "trained": trained, "parameters": count}
            for (device, dtype, trained), count in groups.items()
        ],
        "asked_precision": _asked_precision(groups, autocast, trainer),
        "layers": _number(config, "num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "head_dim": _number(config, "head_dim") or (hidden // heads if hidden and heads else None),
        "vocabulary": _number(config, "vocab_size"),
        "adapter_ranks": sorted(_ranks(roots[0])),
        "head_places": _heads(model),
        "attention": str(getattr(config, "_attn_implementation", "") or ""),
        "quantised": _quantised(model),
        "checkpointing": any(getattr(one, "gradient_checkpointing", False) is True for one in roots[0].modules()),
        "device_map": {str(name): str(where) for name, where in (getattr(model, "hf_device_map", None) or {}).items()},
    }


def _text_config(model: nn.Module) -> Any:
    config = getattr(model, "config", None)
    text = getattr(config, "get_text_config", None)
    return text() if callable(text) else config


def _asked_precision(groups: Mapping[tuple[str, str, bool], int], autocast: str, trainer: Any | None) -> str:
    """What somebody asked for: a Trainer's arguments, accelerate, autocast around the model, or weights of 16 bits."""
    args = getattr(trainer, "args", None)
    for flag, precision in PRECISIONS.items():
        if getattr(args, flag, False) is True:
            return precision
    state: Any = getattr(sys.modules.get("accelerate.state"), "AcceleratorState", None)
    shared = getattr(state, "_shared_state", None) or {}
    if (asked := PRECISIONS.get(str(shared.get("_mixed_precision")))) is not None:
        return asked
    if autocast:
        return autocast.removeprefix("torch.")
    if not groups:
        return ""
    _, most, _ = max(groups, key=lambda key: groups[key])
    return most if most in PRECISIONS.values() else ""


def _ranks(root: nn.Module) -> set[int]:
    found = set()
    for module in root.modules():
        ranks = getattr(module, "r", None)
        if isinstance(ranks, dict) and hasattr(module, "lora_A"):
            found |= {rank for rank in ranks.values() if isinstance(rank, int)}
    return found


def _heads(model: nn.Module) -> list[str]:
    get = getattr(model, "get_output_embeddings", None)
    head = get() if callable(get) else None
    return [name for name, module in model.named_modules() if head is not None and module is head]


def _quantised(model: nn.Module) -> str:
    if getattr(model, "is_loaded_in_4bit", False) is True:
        return "4-bit"
    return "8-bit" if getattr(model, "is_loaded_in_8bit", False) is True else ""


def places_of(model: nn.Module) -> list[str]:
    """Modules that a trace tells apart: attention, feed-forward and norms of each layer, the head, the embedding."""
    layers = _layers(model)
    if layers is None:
        return [
            name for name, module in model.named_modules() if 1 <= name.count(".") + bool(name) <= 2 and _holds(module)
        ]
    name, found = layers
    around = [one for one, module in model.named_modules() if one and name not in one and _is_leaf(module)]
    within = [f"{name}.{i}.{child}" for i, layer in enumerate(found) for child, _ in layer.named_children()]
    adapters = [one for one, module in model.named_modules() if ".lora_" in one and _is_leaf(module)]
    return [*within, *adapters, *around]


def _layers(model: nn.Module) -> tuple[str, nn.ModuleList] | None:
    """The uppermost longest list of modules: a decoder's layers."""
    lists = [(name, one) for name, one in model.named_modules() if isinstance(one, nn.ModuleList) and len(one) > 1]
    return max(lists, key=lambda pair: (len(pair[1]), -len(pair[0])), default=None)


def _is_leaf(module: nn.Module) -> bool:
    return not list(module.children()) and _holds(module)


def _holds(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None and not isinstance(module, nn.ModuleList)


def optimizer_facts(optimizer: Any) -> tuple[str, dict[str, Any]]:
    """`AdamW (fused)`, and what it holds."""
    groups = optimizer.param_groups
    tensors = [p for group in groups for p in group["params"]]
    state = [one for each in optimizer.state.values() for one in each.values() if isinstance(one, torch.Tensor)]
    facts = {
        "tensors": len(tensors),
        "parameters": sum(p.numel() for p in tensors),
        "states": sorted({_name(one.dtype) for one in state if one.dim()}),
        "frozen": sum(p.numel() for p in tensors if not p.requires_grad),
    }
    how = _how(groups, tensors)
    return f"{type(optimizer).__name__} ({how})" if how else type(optimizer).__name__, facts


def _how(groups: Iterable[Mapping[str, Any]], tensors: Sequence[torch.Tensor]) -> str:
    """As PyTorch decides where nothing was asked: `foreach` where all weights are on a GPU."""
    group = next(iter(groups), {})
    if "foreach" not in group and "fused" not in group:
        return ""
    if group.get("fused"):
        return "fused"
    foreach = group.get("foreach")
    if foreach is None:
        foreach = bool(tensors) and all(one.device.type == "cuda" for one in tensors)
    return "foreach" if foreach else "for-loop"


def environment(device: torch.device, loader: Any) -> dict[str, Any]:
    """loader: the iterator that gave the last batch, or None."""
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return {
        "device": "cuda" if device.type == "cuda" else "cpu",
        "machine": asdict(machine_of(device)),
        "world": torch.distributed.get_world_size() if there else 1,
        "gpus": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "tf32": tf32_of(device),
        "loader_workers": getattr(loader, "_num_workers", None),
        "pinned": getattr(loader, "_pin_memory", None),
        "variables": [f"{name}={os.environ[name]}" for name in SPEED if name in os.environ],
    }


def memory(device: torch.device) -> dict[str, Any]:
    """Peaks are of the whole script so far: whoever resets them would change what it prints itself."""
    if device.type != "cuda":
        return {}
    stats = torch.cuda.memory_stats(device)
    return {
        "peak_allocated": torch.cuda.max_memory_allocated(device),
        "peak_reserved": torch.cuda.max_memory_reserved(device),
        "total": torch.cuda.get_device_properties(device).total_memory,
        "retries": int(stats.get("num_alloc_retries", 0)),
    }


def rank() -> int:
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_rank() if there else int(os.environ.get("RANK", "0"))


def world() -> int:
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if there else int(os.environ.get("WORLD_SIZE", "1"))


def _number(config: Any, name: str) -> int | None:
    value = getattr(config, name, None)
    return value if isinstance(value, int) else None


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
