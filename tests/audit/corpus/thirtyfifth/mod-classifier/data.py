import csv

import torch
from torch.utils.data import Dataset

LABELS = ["ok", "spam", "harassment", "off-topic", "doxxing", "self-harm"]


class Comments(Dataset):
    def __init__(self, path):
        with open(path, newline="", encoding="utf-8") as handle:
            self.rows = [(r["comment"], LABELS.index(r["label"])) for r in csv.DictReader(handle)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Collator:
    def __init__(self, tokenizer, max_length=512):
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __call__(self, rows):
        texts, labels = zip(*rows)
        batch = self.tokenizer(
            list(texts), truncation=True, max_length=self.max_length, padding="max_length", return_tensors="pt"
        )
        batch["labels"] = torch.tensor(labels)
        return batch
