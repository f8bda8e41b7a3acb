"""In which precision products run here."""

import torch
from torch import Tensor


def autocasts(x: Tensor) -> bool:
    """Whether autocast is on where `x` is; a skeleton has none."""
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def computes_in(x: Tensor, compute: torch.dtype) -> bool:
    """Whether a product of `x` runs in `compute`, under autocast as it is now."""
    return (torch.get_autocast_dtype(x.device.type) if autocasts(x) else x.dtype) is compute


def short(dtype: torch.dtype) -> str:
    """As it is called where it is named to a user: `bfloat16`."""
    return str(dtype).removeprefix("torch.")
