import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModel


class GatedPool(nn.Module):
    def __init__(self, dim, hidden=256):
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.out = nn.Linear(dim, 1)

    def forward(self, h, mask):
        score = self.gate(h).squeeze(-1).float()
        if torch.isnan(score).any().item():
            raise FloatingPointError("gate gave NaN")
        w = score.masked_fill(~mask, float("-inf")).softmax(-1)
        return self.out((w.unsqueeze(-1) * h).sum(1)).squeeze(-1)


class PathGrader(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.body = AutoModel.from_pretrained(name, dtype=torch.float32)
        self.body.config.use_cache = False
        self.pool = GatedPool(self.body.config.hidden_size)

    def forward(self, ids, mask):
        h = self.body(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        return checkpoint(self.pool, h, mask)
