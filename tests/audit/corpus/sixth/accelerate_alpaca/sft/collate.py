import torch

from .data import IGNORE


class Collator:
    def __init__(self, pad_id, max_len):
        self.pad_id = pad_id
        self.max_len = max_len

    def __call__(self, batch):
        ids, mask, labels = [], [], []
        for ex in batch:
            n = self.max_len - len(ex["input_ids"])
            ids.append(ex["input_ids"] + [self.pad_id] * n)
            mask.append([1] * len(ex["input_ids"]) + [0] * n)
            labels.append(ex["labels"] + [IGNORE] * n)
        return {
            "input_ids": torch.tensor(ids),
            "attention_mask": torch.tensor(mask),
            "labels": torch.tensor(labels),
        }
