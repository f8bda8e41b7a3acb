import torch
from torch.utils.data import Dataset


class Games(Dataset):
    def __init__(self, path, limit=1024):
        rows = torch.load(path, weights_only=True)
        self.rows = [r for r in rows if 8 <= len(r) <= limit]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows, pad=1):
    width = -(-max(len(r) for r in rows) // 8) * 8
    ids = torch.full((len(rows), width), pad)
    labels = torch.full((len(rows), width), -100)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, r in enumerate(rows):
        ids[i, : len(r)] = r
        labels[i, : len(r)] = r
        mask[i, : len(r)] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}
