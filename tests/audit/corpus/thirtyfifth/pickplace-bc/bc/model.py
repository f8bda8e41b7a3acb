import torch.nn as nn
import torchvision


class ChunkPolicy(nn.Module):
    def __init__(self, backbone, hidden, horizon, action_dim=7):
        super().__init__()
        self.horizon, self.action_dim = horizon, action_dim
        net = getattr(torchvision.models, backbone)(weights="DEFAULT")
        width = net.fc.in_features
        net.fc = nn.Identity()
        self.encoder = net
        self.head = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, horizon * action_dim))

    def forward(self, frames):
        return self.head(self.encoder(frames)).view(-1, self.horizon, self.action_dim)
