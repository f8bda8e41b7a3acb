import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_loader(path, context, batch, rank, world, seed):
    ids = torch.from_numpy(np.load(path).astype(np.int64))
    rows = (ids.numel() - 1) // context
    x = ids[: rows * context].view(rows, context)
    y = ids[1 : rows * context + 1].view(rows, context)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds, world, rank, shuffle=True, seed=seed, drop_last=True)
    return DataLoader(ds, batch_size=batch, sampler=sampler, num_workers=16, pin_memory=True, drop_last=True), sampler
