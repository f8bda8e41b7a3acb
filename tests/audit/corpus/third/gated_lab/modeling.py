"""A small decoder with soft-clipped residual branches (the idea under test)."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


@dataclass
class LabConfig:
    vocab: int = 8192
    width: int = 1024
    heads: int = 16
    depth: int = 24
    context: int = 1024
    clip: float = 30.0


class SoftClip(nn.Module):
    """Leaves small activations alone and squashes a branch that has exploded."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x):
        peak = x.detach().abs().amax().item()
        if peak > self.limit:
            x = self.limit * torch.tanh(x / self.limit)
        return self.gain * x


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.norm1 = nn.LayerNorm(cfg.width)
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width, bias=False)
        self.proj = nn.Linear(cfg.width, cfg.width, bias=False)
        self.norm2 = nn.LayerNorm(cfg.width)
        self.up = nn.Linear(cfg.width, 4 * cfg.width)
        self.down = nn.Linear(4 * cfg.width, cfg.width)
        self.clip1 = SoftClip(cfg.clip)
        self.clip2 = SoftClip(cfg.clip)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.clip1(self.proj(a.transpose(1, 2).reshape(b, t, w)))
        return x + self.clip2(self.down(F.gelu(self.up(self.norm2(x)))))


class LabModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.tokens = nn.Embedding(cfg.vocab, cfg.width)
        self.positions = nn.Embedding(cfg.context, cfg.width)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.depth))
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, cfg.vocab, bias=False)
        self.save_memory = False

    def load_embeddings(self, tensors):
        """Embeddings come from the base run and stay as they are."""
        with torch.no_grad():
            self.tokens.weight.copy_(tensors["tokens"])
            self.positions.weight.copy_(tensors["positions"])
        self.tokens.requires_grad_(False)
        self.positions.requires_grad_(False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.size(1), device=ids.device))
        for block in self.blocks:
            if self.save_memory and self.training:
                x = checkpoint(block, x, use_reentrant=True)
            else:
                x = block(x)
        return self.head(self.norm(x))
