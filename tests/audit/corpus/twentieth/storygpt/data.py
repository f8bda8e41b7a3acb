import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset


def token_rows(path, block):
    ids = np.fromfile(path, dtype=np.uint16).astype(np.int64)
    n = (len(ids) - 1) // block
    x = torch.from_numpy(ids[: n * block]).view(n, block)
    y = torch.from_numpy(ids[1 : n * block + 1]).view(n, block)
    return TensorDataset(x, y)


def make_loader(path, block, batch, shuffle):
    return DataLoader(
        token_rows(path, block),
        batch_size=batch,
        shuffle=shuffle,
        num_workers=12,
        pin_memory=True,
        drop_last=True,
    )
