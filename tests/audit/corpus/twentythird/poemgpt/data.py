import json

import torch
from torch.utils.data import Dataset


class PoemDataset(Dataset):
    def __init__(self, path, tok, block):
        with open(path, encoding="utf-8") as f:
            self.texts = [json.loads(line)["poem"] for line in f]
        self.tok = tok
        self.block = block

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        ids = self.tok(self.texts[i], truncation=True, max_length=self.block - 1)["input_ids"]
        return torch.tensor(ids + [self.tok.eos_token_id])


def collate(rows, pad):
    n = max(len(r) for r in rows)
    ids = torch.full((len(rows), n), pad)
    labels = torch.full((len(rows), n), -100)
    for i, r in enumerate(rows):
        ids[i, : len(r)] = r
        labels[i, : len(r)] = r
    return ids, labels
