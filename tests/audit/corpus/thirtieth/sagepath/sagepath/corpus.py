import csv

import torch
from torch.utils.data import Dataset


class Paths(Dataset):
    """Everything is tokenised once in the constructor; rows are short (about 120 tokens)."""

    def __init__(self, table, tok, max_len=384):
        with open(table, newline="", encoding="utf-8") as fh:
            rows = list(csv.reader(fh, delimiter="\t"))
        enc = tok([r[0] for r in rows], truncation=True, max_length=max_len)
        self.ids = enc["input_ids"]
        self.grade = [float(r[1]) for r in rows]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.grade[i]


def collate(rows, pad):
    n = max(len(r[0]) for r in rows)
    ids = torch.full((len(rows), n), pad)
    mask = torch.zeros((len(rows), n), dtype=torch.bool)
    for i, (x, _) in enumerate(rows):
        ids[i, : len(x)] = torch.tensor(x)
        mask[i, : len(x)] = True
    return ids, mask, torch.tensor([g for _, g in rows])
