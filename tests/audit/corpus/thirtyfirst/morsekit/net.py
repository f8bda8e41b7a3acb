import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.fo = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, c))
        return x + self.fo(F.gelu(self.fc(self.ln2(x))))


class LM(nn.Module):
    def __init__(self, vocab, block, layers, width, heads, recompute=False):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, width), nn.Embedding(block, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.recompute = recompute
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        self.head.weight = self.emb.weight

    def forward(self, ids, targets):
        x = self.emb(ids) + self.pos.weight[: ids.shape[1]]
        for layer in self.layers:
            # only used for the 24-layer configuration on the 24 GB cards
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute and self.training else layer(x)
        logits = self.head(self.ln(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
