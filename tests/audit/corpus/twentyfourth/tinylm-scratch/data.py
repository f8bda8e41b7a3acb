import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset


def packed_loader(path, seq_len, batch_size):
    """tokens.bin: uint16 ids of all documents, each closed by EOS (id 0). 180 MB."""
    tokens = torch.from_numpy(np.fromfile(path, dtype=np.uint16).astype(np.int64))
    n = (len(tokens) - 1) // seq_len
    x = tokens[: n * seq_len].view(n, seq_len)
    y = tokens[1 : n * seq_len + 1].view(n, seq_len)
    return DataLoader(
        TensorDataset(x, y),
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=12,
        persistent_workers=True,
        pin_memory=True,
    )
