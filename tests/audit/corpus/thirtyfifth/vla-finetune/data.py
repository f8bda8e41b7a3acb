from pathlib import Path

import torch
from torch.utils.data import Dataset


class Steps(Dataset):
    """One file per episode step: pixel_values, input_ids, labels (-100 before the action), already cut to 1100 tokens."""

    def __init__(self, root):
        self.files = sorted(Path(root).glob("*/*.pt"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return torch.load(self.files[index], weights_only=True)


class Collator:
    def __init__(self, pad_token_id):
        self.pad_token_id = pad_token_id

    def __call__(self, rows):
        pad = torch.nn.utils.rnn.pad_sequence
        ids = pad([r["input_ids"] for r in rows], batch_first=True, padding_value=self.pad_token_id)
        mask = pad([torch.ones_like(r["input_ids"]) for r in rows], batch_first=True)
        labels = pad([r["labels"] for r in rows], batch_first=True, padding_value=-100)
        pixels = torch.stack([r["pixel_values"] for r in rows])
        return {"input_ids": ids, "attention_mask": mask, "labels": labels, "pixel_values": pixels}
