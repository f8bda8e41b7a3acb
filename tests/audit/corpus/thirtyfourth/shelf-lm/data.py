import json

import torch
from torch.utils.data import Dataset


class Products(Dataset):
    def __init__(self, path, tokenizer, max_len):
        with open(path) as f:
            self.rows = [json.loads(line) for line in f]
        self.tok, self.max_len = tokenizer, max_len

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r = self.rows[i]
        facts = "; ".join(f"{k}: {v}" for k, v in r["attributes"].items())
        text = f"{r['title']}\n{facts}\n---\n{r['description']}{self.tok.eos_token}"
        ids = self.tok(text, truncation=True, max_length=self.max_len)["input_ids"]
        return torch.tensor(ids)


def collate(rows):
    longest = max(len(r) for r in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, r in enumerate(rows):
        ids[i, : len(r)] = r
        mask[i, : len(r)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
