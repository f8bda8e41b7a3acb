"""In which precision products run here."""

import torch
from torch import Tensor


def computes_in(x: Tensor, compute: torch.dtype) -> bool:
    """Whether a product of `x` runs in `compute`, under autocast as it is now."""
    if x.dtype is compute and compute is not torch.float32:
        return True  # autocast or not: it leaves its own dtype alone
    kind = x.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):  # a skeleton has no autocast
        return torch.get_autocast_dtype(kind) is compute
    return x.dtype is compute
