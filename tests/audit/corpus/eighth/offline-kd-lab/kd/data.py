import glob
import json
import os

import numpy as np
import torch
from torch.utils.data import Dataset


class Shards(Dataset):
    """One small .npz for each row, in the folder SHARD.npz.d (unpacked there once by `unshard.py`, other repository):

    ids [2048] int32, top_ids [2048, 64] int32, top_logp [2048, 64] float16 (entry t: the teacher on token t, given those before),
    start and stop int32 (first answer token, first padding token).
    """

    def __init__(self, folder):
        with open(os.path.join(folder, "index.json")) as fh:
            self.index = json.load(fh)          # [[file, row], ...]
        self.folder = folder
        assert glob.glob(os.path.join(folder, "*.npz.d")), folder

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        name, row = self.index[i]
        base = os.path.join(self.folder, name)
        part = np.load(f"{base}.d/{row}.npz")
        ids = torch.from_numpy(part["ids"].astype(np.int64))
        labels = ids.clone()
        labels[: int(part["start"])] = -100
        labels[int(part["stop"]):] = -100
        return {
            "input_ids": ids,
            "attention_mask": (torch.arange(len(ids)) < int(part["stop"])).long(),
            "labels": labels,
            "top_ids": torch.from_numpy(part["top_ids"].astype(np.int64)),
            "top_logp": torch.from_numpy(part["top_logp"]),
        }
