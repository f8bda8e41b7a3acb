"""Rows tokenised beforehand by the export job, held whole in memory (about 400 MB)."""
import torch
from torch.utils.data import Dataset

PAD = 0
MULTIPLE = 8


class InMemoryRows(Dataset):
    def __init__(self, path):
        blob = torch.load(path, weights_only=True)
        self.ids = blob["input_ids"]
        self.prompt = blob["prompt_lengths"].tolist()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        ids = self.ids[i]
        labels = ids.clone()
        labels[: self.prompt[i]] = -100
        return ids, labels


def collate(rows):
    longest = max(len(ids) for ids, _ in rows)
    width = (longest + MULTIPLE - 1) // MULTIPLE * MULTIPLE
    ids = torch.full((len(rows), width), PAD)
    labels = torch.full((len(rows), width), -100)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, (x, y) in enumerate(rows):
        ids[i, : len(x)] = x
        labels[i, : len(y)] = y
        mask[i, : len(x)] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}
