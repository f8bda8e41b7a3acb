"""Fixed rows cut from a memory-mapped token file. Documents are kept apart by position ids."""
import numpy as np
import torch
from torch.utils.data import Dataset


class Rows(Dataset):
    def __init__(self, path, row_len, eos_id):
        self.tok = np.memmap(path, dtype=np.uint32, mode="r")
        self.row_len = row_len
        self.eos_id = eos_id
        self.n = len(self.tok) // row_len

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        ids = torch.from_numpy(self.tok[i * self.row_len : (i + 1) * self.row_len].astype(np.int64))
        starts = torch.zeros_like(ids, dtype=torch.bool)
        starts[0] = True
        starts[1:] = ids[:-1] == self.eos_id
        idx = torch.arange(len(ids))
        first = torch.where(starts, idx, torch.zeros_like(idx)).cummax(0).values
        labels = ids.clone()
        labels[starts] = -100          # the first token of a document is not predicted from the previous one
        return {"input_ids": ids, "position_ids": idx - first, "labels": labels}
