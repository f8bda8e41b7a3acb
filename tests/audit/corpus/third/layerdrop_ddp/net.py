import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.RMSNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class LayerDropLM(nn.Module):
    """Every layer is skipped with probability `drop` during training (Fan et al., structured dropout).

    The coin is Python's, so no device value is read. A skipped layer has no gradient in that step.
    """

    def __init__(self, vocab=8000, width=768, heads=12, depth=16, context=512, drop=0.1):
        super().__init__()
        self.drop = drop
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.size(1)]
        for layer in self.layers:
            if self.training and random.random() < self.drop:
                continue
            x = layer(x)
        return self.head(self.norm(x))
