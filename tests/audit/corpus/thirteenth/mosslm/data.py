import numpy as np
import torch
from torch.utils.data import Dataset


class PackedDocs(Dataset):
    """Rows of seq_len + 1 tokens; `starts` marks the first token of each document."""

    def __init__(self, path, seq_len):
        z = np.load(path)
        self.tokens, self.starts = z["tokens"], z["starts"]
        self.seq_len = seq_len

    def __len__(self):
        return (len(self.tokens) - 1) // self.seq_len

    def __getitem__(self, i):
        a, b = i * self.seq_len, (i + 1) * self.seq_len
        ids = torch.from_numpy(self.tokens[a : b + 1].astype(np.int64))
        starts = torch.from_numpy(self.starts[a : b + 1].astype(bool))
        doc = starts[:-1].long().cumsum(0)
        idx = torch.arange(self.seq_len)
        first = torch.where(starts[:-1], idx, torch.zeros_like(idx)).cummax(0).values
        labels = ids[1:].masked_fill(starts[1:], -100)
        return ids[:-1], labels, idx - first, doc


def collate(rows):
    ids, labels, pos, doc = (torch.stack(x) for x in zip(*rows))
    T = ids.shape[1]
    mask = doc[:, None, :, None] == doc[:, None, None, :]
    mask = mask & torch.ones(T, T, dtype=torch.bool).tril()
    return ids, labels, pos, mask
