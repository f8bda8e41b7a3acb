"""Ranks that begin alike stay alike: what must be the same on all of them is compared before the first step.

Each rank applies the same sum of gradients to its own copy of the weights, so a copy that differs in one value differs for
the whole run, and nothing would show it.
"""

import platform
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dynotune.environment import installed
from dynotune.errors import TrainingError
from dynotune.parallel.ranks import Ranks

PACKAGES = ("dynotune", "torch", "transformers", "peft", "tokenizers", "numpy", "triton")
"""Whose versions decide what is computed."""


def begin_alike(ranks: Ranks, model: nn.Module, facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Give all ranks the first one's trained parameters, then compare: versions, `facts` by name, every weight and buffer.

    Raises `TrainingError` with the ranks and what differs on them.
    """
    if ranks.world == 1:
        return
    told = {"versions": versions(), **facts}
    differing = differences(ranks.gather(told))
    if not differing:
        ranks.broadcast(p.data for p in model.parameters() if p.requires_grad)
        differing = differences(ranks.gather({"weights": checksums(model)}))
    if differing:
        listed = "\n  ".join(differing[:12]) + (f"\n  and {len(differing) - 12} more" if len(differing) > 12 else "")
        raise TrainingError(
            f"The ranks are not alike, so they would train different models:\n  {listed}\nGive every process the same"
            " configuration, packages, data and model."
        )


def differences(told: list[dict[str, dict[str, Any]]]) -> list[str]:
    """Where a rank tells something else than rank 0: one line each."""
    found = []
    first = told[0]
    for rank, mine in enumerate(told):
        for name in first:
            for key in sorted({*first[name], *mine[name]}):
                here, there = first[name].get(key), mine[name].get(key)
                if here != there:
                    found.append(f"{name}: {key} is {_short(there)} on rank {rank} and {_short(here)} on rank 0")
    return found


def versions() -> dict[str, str]:
    """Of Python and of the packages that compute; those that are not installed are absent."""
    return {"Python": platform.python_version(), **installed(PACKAGES)}


def checksums(model: nn.Module) -> dict[str, int]:
    """By name of each parameter and buffer, the sum of its bytes taken as whole numbers: one wrong bit changes it."""
    names, sums = [], []
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.numel():
            names.append(name)
            sums.append(_sum(tensor.detach()))
    values = torch.stack([one.cpu() for one in sums]).tolist() if sums else []
    return dict(zip(names, values, strict=True))


def _sum(tensor: Tensor) -> Tensor:
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    flat = tensor.contiguous().reshape(-1)
    flat = torch.view_as_real(flat) if flat.is_complex() else flat
    return flat.view(kinds[flat.element_size()]).sum(dtype=torch.int64)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
