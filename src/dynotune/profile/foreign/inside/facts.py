"""What there is to know of a script that is not ours: what it asked for, and as which of several processes it runs."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dynotune.profile.records import facts

PRECISIONS = {"bf16": "bfloat16", "fp16": "float16"}


def model_facts(roots: Sequence[nn.Module], autocast: str, trainer: Any | None) -> dict[str, Any]:
    """autocast: its precision around the model's calls."""
    model = facts.inner_model(roots)
    if model is None:
        return {}
    asked = _asked_precision(facts.weight_groups(roots[0]), autocast, trainer)
    return facts.model_facts(roots[0], model, model, asked)


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


def optimizer_facts(optimizer: Any) -> dict[str, Any]:
    """What it holds."""
    tensors = [p for group in optimizer.param_groups for p in group["params"]]
    state = [one for each in optimizer.state.values() for one in each.values() if isinstance(one, torch.Tensor)]
    return {
        "tensors": len(tensors),
        "parameters": sum(p.numel() for p in tensors),
        "states": sorted({facts.precision(one.dtype) for one in state if one.dim()}),
        "frozen": sum(p.numel() for p in tensors if not p.requires_grad),
    }


def environment(device: torch.device, loader: Any, trainer: Any | None, model: nn.Module | None) -> dict[str, Any]:
    """loader: the iterator that gave the last batch, or None."""
    return facts.environment_of(
        device,
        world=world(),
        loader_workers=getattr(loader, "_num_workers", None),
        pinned=getattr(loader, "_pin_memory", None),
        paths=_paths(trainer, model),
    )


def _paths(trainer: Any | None, model: nn.Module | None) -> dict[str, Path]:
    """What the script reads and writes, as far as that can be told from outside: the kinds of file systems only."""
    told = {
        "working folder": os.curdir,
        "output": getattr(getattr(trainer, "args", None), "output_dir", None),
        "model": getattr(getattr(model, "config", None), "_name_or_path", None),
    }
    found = {what: Path(name) for what, name in told.items() if isinstance(name, str) and name and _is_there(name)}
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    return {**found, "cache": Path(home)} if trainer is not None else found


def _is_there(name: str) -> bool:
    """Names are the script's own: one can be longer than the system takes."""
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def rank() -> int:
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_rank() if there else int(os.environ.get("RANK", "0"))


def world() -> int:
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if there else int(os.environ.get("WORLD_SIZE", "1"))
