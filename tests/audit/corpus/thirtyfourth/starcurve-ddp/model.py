import torch
from torch import nn


class CurveNet(nn.Module):
    """Patches of 16 cadences, learned positions, mean over the patches."""

    def __init__(self, length=2048, patch=16, dim=384, depth=8, heads=6, classes=6):
        super().__init__()
        self.embed = nn.Conv1d(2, dim, kernel_size=patch, stride=patch)
        self.pos = nn.Parameter(torch.randn(1, length // patch, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(
            dim, heads, 4 * dim, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        h = self.embed(x).transpose(1, 2) + self.pos
        h = self.norm(self.blocks(h))
        return self.head(h.mean(dim=1))
