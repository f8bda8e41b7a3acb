"""Token shards: uint16 .bin files, one memory map each."""
import glob

import numpy as np
import torch

from .dist import RANK, WORLD_SIZE


class Shards:
    def __init__(self, pattern, block, batch, seed=0):
        files = sorted(glob.glob(pattern))
        if not files:
            raise FileNotFoundError(pattern)
        self.maps = [np.memmap(f, dtype=np.uint16, mode="r") for f in files]
        sizes = np.array([len(m) for m in self.maps], dtype=np.float64)
        self.p = sizes / sizes.sum()
        self.block, self.batch = block, batch
        # every rank draws other windows
        self.rng = np.random.default_rng([seed, RANK])

    def tokens_per_step(self):
        return self.batch * self.block * WORLD_SIZE

    def next(self, device):
        x = np.empty((self.batch, self.block + 1), dtype=np.int64)
        for i, k in enumerate(self.rng.choice(len(self.maps), size=self.batch, p=self.p)):
            m = self.maps[k]
            at = self.rng.integers(0, len(m) - self.block - 1)
            x[i] = m[at:at + self.block + 1]
        t = torch.from_numpy(x).pin_memory().to(device, non_blocking=True)
        return t[:, :-1].contiguous(), t[:, 1:].contiguous()
