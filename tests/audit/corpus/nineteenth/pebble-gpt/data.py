import json

import torch
from torch.utils.data import Dataset


class StoryDataset(Dataset):
    def __init__(self, path, block_size):
        self.block_size = block_size
        with open(path) as f:
            self.rows = [json.loads(line) for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids = self.rows[i]
        x = torch.zeros(self.block_size, dtype=torch.long)
        y = torch.full((self.block_size,), -100, dtype=torch.long)
        n = len(ids) - 1
        x[:n] = torch.tensor(ids[:-1])
        y[:n] = torch.tensor(ids[1:])
        return x, y
