import numpy as np
import torch


class Batches:
    """Random windows of the token file; the state is the step's number only."""

    def __init__(self, path, ctx, batch, seed):
        self.tokens = np.memmap(path, dtype=np.uint32, mode="r")
        self.windows = (len(self.tokens) - 1) // ctx
        self.ctx, self.batch, self.seed = ctx, batch, seed

    def get(self, index, device):
        rng = np.random.default_rng((self.seed, index))
        picks = rng.integers(0, self.windows, self.batch)
        rows = np.stack([self.tokens[w * self.ctx : (w + 1) * self.ctx] for w in picks])
        ids = torch.from_numpy(rows.astype(np.int64)).pin_memory()
        return ids.to(device, non_blocking=True)
