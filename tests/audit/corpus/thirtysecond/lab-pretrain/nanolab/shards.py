import numpy as np
import torch


class Shard:
    """uint16 token file, random windows. One generator per rank."""

    def __init__(self, path, ctx, seed):
        self.tok = np.memmap(path, dtype=np.uint16, mode="r")
        self.ctx = ctx
        self.rng = np.random.default_rng(seed)

    def batch(self, n, device):
        at = self.rng.integers(0, len(self.tok) - self.ctx - 1, size=n)
        w = np.stack([self.tok[i : i + self.ctx + 1] for i in at]).astype(np.int64)
        t = torch.from_numpy(w).pin_memory().to(device, non_blocking=True)
        return t[:, :-1], t[:, 1:]
