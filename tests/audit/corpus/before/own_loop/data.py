import json

import torch
from torch.utils.data import Dataset

class ChatDataset(Dataset):
    def __init__(self, path, tokenizer, max_length=2048):
        self.rows = [json.loads(line) for line in open(path)]
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        text = self.tokenizer.apply_chat_template(self.rows[i]["messages"], tokenize=False)
        ids = self.tokenizer(text, truncation=True, max_length=self.max_length)["input_ids"]
        return torch.tensor(ids)

def collate(rows):
    longest = max(len(r) for r in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, r in enumerate(rows):
        ids[i, : len(r)] = r
        mask[i, : len(r)] = 1
    labels = ids.masked_fill(mask == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}
