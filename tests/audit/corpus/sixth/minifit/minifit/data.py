import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_loader(cfg, world, rank):
    z = np.load(cfg.data)
    ds = TensorDataset(torch.from_numpy(z["ids"]), torch.from_numpy(z["labels"]))  # ~1.2 GB in memory
    sampler = DistributedSampler(ds, world, rank, shuffle=True, seed=cfg.seed, drop_last=True)
    loader = DataLoader(ds, batch_size=cfg.micro_batch, sampler=sampler, num_workers=0, drop_last=True)
    return loader, sampler
