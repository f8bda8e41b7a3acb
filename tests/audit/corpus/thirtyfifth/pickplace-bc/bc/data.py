import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms import v2


class Episodes(Dataset):
    def __init__(self, root, split, horizon, limit=None):
        self.root = Path(root)
        self.horizon = horizon
        self.actions, self.index = {}, []
        for line in (self.root / f"{split}.jsonl").read_text().splitlines():
            meta = json.loads(line)
            actions = np.load(self.root / meta["id"] / "actions.npy").astype(np.float32)
            self.actions[meta["id"]] = actions
            self.index += [(meta["id"], t) for t in range(len(actions) - horizon)]
        if limit:
            self.index = self.index[:limit]
        self.transform = v2.Compose([
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ])

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        episode, t = self.index[i]
        frame = Image.open(self.root / episode / f"{t:05d}.jpg").convert("RGB")
        chunk = self.actions[episode][t : t + self.horizon]
        return self.transform(frame), torch.from_numpy(chunk)
