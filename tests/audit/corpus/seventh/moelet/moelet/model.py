from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Shape:
    vocab: int = 50304
    block: int = 2048
    layers: int = 16
    heads: int = 16
    width: int = 1024
    experts: int = 8
    top: int = 2


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.h = s.heads
        self.qkv = nn.Linear(s.width, 3 * s.width, bias=False)
        self.out = nn.Linear(s.width, s.width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, c // self.h).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Expert(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.up = nn.Linear(s.width, 2 * s.width, bias=False)
        self.down = nn.Linear(2 * s.width, s.width, bias=False)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class MoE(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.top, self.n = s.top, s.experts
        self.gate = nn.Linear(s.width, s.experts, bias=False)
        self.experts = nn.ModuleList(Expert(s) for _ in range(s.experts))
        self.aux = None
        self.peak = 0.0

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        prob = F.softmax(self.gate(x).float(), dim=-1)
        w, idx = prob.topk(self.top, dim=-1)
        w = (w / w.sum(-1, keepdim=True)).to(x.dtype)
        share = F.one_hot(idx, self.n).float().mean((0, 1))
        self.aux = self.n * (share * prob.mean(0)).sum()
        self.peak = max(self.peak * 0.99, share.max().item())

        dense = torch.zeros(x.shape[0], self.n, dtype=x.dtype, device=x.device)
        dense = dense.scatter(1, idx, w)
        y = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            # every expert sees all the rows: 8 small experts, static shapes for compile
            y = y + expert(x) * dense[:, e:e + 1]
        return y.view(shape)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(s.width), nn.RMSNorm(s.width)
        self.att, self.moe = Attention(s), MoE(s)

    def forward(self, x):
        x = x + self.att(self.n1(x))
        return x + self.moe(self.n2(x))


class MoElet(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.tok = nn.Embedding(s.vocab, s.width)
        self.pos = nn.Embedding(s.block, s.width)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm = nn.RMSNorm(s.width)
        self.head = nn.Linear(s.width, s.vocab, bias=False)
        self.head.weight = self.tok.weight
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, ids, targets):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for b in self.blocks:
            x = b(x)
        logits = self.head(self.norm(x))
        ce = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))
        aux = torch.stack([b.moe.aux for b in self.blocks]).mean()
        return ce, aux
