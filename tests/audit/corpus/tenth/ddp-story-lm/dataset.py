import json

import torch
from torch.utils.data import Dataset
from transformers import AutoTokenizer


class StoryDataset(Dataset):
    """One story per line in a JSONL file, tokenized when it is asked for."""

    def __init__(self, path, max_len=1024):
        self.path = path
        self.max_len = max_len
        self.tok = AutoTokenizer.from_pretrained("gpt2")
        self.offsets = []
        with open(path, "rb") as f:
            pos = f.tell()
            for line in f:
                self.offsets.append(pos)
                pos += len(line)

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, i):
        with open(self.path, "rb") as f:
            f.seek(self.offsets[i])
            text = json.loads(f.readline())["text"]
        ids = self.tok(text + self.tok.eos_token, truncation=True, max_length=self.max_len)["input_ids"]
        return torch.tensor(ids)


def collate(batch, pad_id=50256):
    n = max(len(x) for x in batch)
    input_ids = torch.full((len(batch), n), pad_id)
    labels = torch.full((len(batch), n), -100)
    for i, x in enumerate(batch):
        input_ids[i, : len(x)] = x
        labels[i, : len(x)] = x
    return {"input_ids": input_ids, "labels": labels}
