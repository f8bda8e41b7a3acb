"""Clause data: the file stays on disk, rows are read and encoded when asked for."""
import json

import torch
from torch.utils.data import Dataset


class ClauseDataset(Dataset):
    """One JSON object a line with the fields `clause` and `plain`."""

    def __init__(self, path, tokenizer, max_len):
        self.path = path
        self.tokenizer = tokenizer
        self.max_len = max_len
        self.offsets = [0]
        with open(path, "rb") as f:
            for line in f:
                self.offsets.append(self.offsets[-1] + len(line))
        self.offsets.pop()

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, i):
        with open(self.path, "rb") as f:
            f.seek(self.offsets[i])
            row = json.loads(f.readline())
        prompt = f"Clause:\n{row['clause']}\n\nIn plain words:\n"
        target = row["plain"] + self.tokenizer.eos_token
        p = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        t = self.tokenizer(target, add_special_tokens=False)["input_ids"]
        ids = (p + t)[: self.max_len]
        return {"input_ids": ids, "prompt_len": len(p)}


class ClauseCollator:
    """Pads to the longest row of the batch; prompt and padding carry no loss."""

    def __init__(self, tokenizer):
        self.pad_id = tokenizer.pad_token_id

    def __call__(self, rows):
        width = max(len(r["input_ids"]) for r in rows)
        ids = torch.full((len(rows), width), self.pad_id, dtype=torch.long)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for i, r in enumerate(rows):
            n = len(r["input_ids"])
            ids[i, :n] = torch.tensor(r["input_ids"])
            mask[i, :n] = 1
        labels = ids.clone()
        labels[labels == self.pad_id] = -100
        for i, r in enumerate(rows):
            labels[i, : r["prompt_len"]] = -100
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}
