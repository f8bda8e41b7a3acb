import torch


class Collator:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        width = max(len(r["input_ids"]) for r in rows)
        ids, labels, mask = [], [], []
        for r in rows:
            gap = width - len(r["input_ids"])
            ids.append(r["input_ids"] + [self.pad_id] * gap)
            labels.append(r["labels"] + [-100] * gap)
            mask.append([1] * len(r["input_ids"]) + [0] * gap)
        return {
            "input_ids": torch.tensor(ids),
            "labels": torch.tensor(labels),
            "attention_mask": torch.tensor(mask),
        }
