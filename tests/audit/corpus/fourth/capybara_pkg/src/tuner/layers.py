"""Layers that we put into the pretrained model."""
import torch
from torch import nn


class OutlierClip(nn.Module):
    """Limits the normalised queries or keys of one attention layer.

    A handful of channels of the small Qwen models grow large during tuning. The
    values are pulled back to `limit`, but only when a batch has such outliers at
    all.
    """

    def __init__(self, norm: nn.Module, limit: float = 40.0):
        super().__init__()
        self.norm = norm
        self.limit = limit

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(hidden)
        peak = hidden.detach().abs().max().item()
        if peak > self.limit:
            hidden = hidden.clamp(-self.limit, self.limit)
        return hidden


def install_clips(model, limit: float) -> int:
    """Wraps the query and key norms of every block; returns the number of blocks."""
    n = 0
    for block in model.model.layers:
        attention = block.self_attn
        attention.q_norm = OutlierClip(attention.q_norm, limit)
        attention.k_norm = OutlierClip(attention.k_norm, limit)
        n += 1
    return n
