import torch
import torch.nn as nn
import torch.nn.functional as F

from .config import ModelCfg


class Attention(nn.Module):
    def __init__(self, cfg: ModelCfg):
        super().__init__()
        self.h = cfg.n_head
        self.qkv = nn.Linear(cfg.d_model, 3 * cfg.d_model, bias=False)
        self.out = nn.Linear(cfg.d_model, cfg.d_model, bias=False)

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, C // self.h).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, cfg: ModelCfg):
        super().__init__()
        self.n1 = nn.RMSNorm(cfg.d_model)
        self.n2 = nn.RMSNorm(cfg.d_model)
        self.attn = Attention(cfg)
        self.mlp = nn.Sequential(
            nn.Linear(cfg.d_model, 4 * cfg.d_model, bias=False),
            nn.GELU(),
            nn.Linear(4 * cfg.d_model, cfg.d_model, bias=False),
        )

    def forward(self, x, mask, doc_ids):
        if doc_ids.max().item() >= 512:
            raise ValueError("too many documents in a row")
        x = x + self.attn(self.n1(x), mask)
        return x + self.mlp(self.n2(x))


class PackLM(nn.Module):
    def __init__(self, cfg: ModelCfg):
        super().__init__()
        self.tok = nn.Embedding(cfg.vocab, cfg.d_model)
        self.pos = nn.Embedding(cfg.block, cfg.d_model)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layer))
        self.norm = nn.RMSNorm(cfg.d_model)
        self.head = nn.Linear(cfg.d_model, cfg.vocab, bias=False)
        self.head.weight = self.tok.weight
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, ids, pos, doc_ids, labels):
        T = ids.size(1)
        causal = torch.ones(T, T, dtype=torch.bool, device=ids.device).tril()
        mask = (doc_ids[:, :, None] == doc_ids[:, None, :]) & causal
        mask = mask[:, None]
        x = self.tok(ids) + self.pos(pos)
        for b in self.blocks:
            x = b(x, mask, doc_ids)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), ignore_index=-100)
