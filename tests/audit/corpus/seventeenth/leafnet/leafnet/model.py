import torch
from torch import nn
import torch.nn.functional as F


class SafeNorm(nn.Module):
    def __init__(self, channels, groups=8):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        peak = x.detach().abs().max().item()
        if peak > 1e4:
            x = x * (1e4 / peak)
        return self.norm(x)


class Block(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.norm1 = SafeNorm(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.norm2 = SafeNorm(cout)
        self.skip = nn.Identity()
        if stride != 1 or cin != cout:
            self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.skip(x))


class LeafNet(nn.Module):
    def __init__(self, classes, width=64):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        layers, cin = [], width
        for i, n in enumerate((2, 2, 3, 2)):
            cout = width * 2**i
            for j in range(n):
                layers.append(Block(cin, cout, stride=2 if j == 0 else 1))
                cin = cout
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(cin, classes)

    def forward(self, x):
        x = self.body(self.stem(x))
        return self.head(x.mean(dim=(2, 3)))
