import json

import torch
from torch.utils.data import Dataset


class Pairs(Dataset):
    def __init__(self, path, tok, max_len):
        with open(path) as f:
            self.rows = [json.loads(x) for x in f]
        self.tok, self.max_len = tok, max_len

    def __len__(self):
        return len(self.rows)

    def one(self, prompt, answer):
        p = self.tok(prompt).input_ids
        a = self.tok(answer + self.tok.eos_token).input_ids
        ids = (p + a)[: self.max_len]
        return ids, ([-100] * len(p) + a)[: self.max_len]

    def __getitem__(self, i):
        r = self.rows[i]
        prompt = self.tok.apply_chat_template(
            [{"role": "user", "content": r["prompt"]}], tokenize=False, add_generation_prompt=True
        ).removeprefix(self.tok.bos_token)
        return self.one(prompt, r["chosen"]), self.one(prompt, r["rejected"])


class Collate:
    def __init__(self, pad):
        self.pad = pad

    def __call__(self, pairs):
        rows = [p[0] for p in pairs] + [p[1] for p in pairs]
        n = max(len(i) for i, _ in rows)
        ids = torch.full((len(rows), n), self.pad)
        labels = torch.full((len(rows), n), -100)
        mask = torch.zeros((len(rows), n), dtype=torch.long)
        for k, (i, lab) in enumerate(rows):
            ids[k, : len(i)] = torch.tensor(i)
            labels[k, : len(lab)] = torch.tensor(lab)
            mask[k, : len(i)] = 1
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}
