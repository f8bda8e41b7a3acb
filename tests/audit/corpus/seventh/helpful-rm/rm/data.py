"""Preference pairs, tokenised up front into plain lists."""
import json

import torch
from torch.utils.data import Dataset


class Pairs(Dataset):
    def __init__(self, path, tokenizer, max_length):
        self.rows = []
        dropped = 0
        with open(path, encoding="utf-8") as fh:
            for line in fh:
                r = json.loads(line)
                c = tokenizer(self.text(r["prompt"], r["chosen"])).input_ids + [tokenizer.eos_token_id]
                d = tokenizer(self.text(r["prompt"], r["rejected"])).input_ids + [tokenizer.eos_token_id]
                if max(len(c), len(d)) > max_length:
                    dropped += 1
                    continue
                self.rows.append((c, d))
        print(f"{path}: {len(self.rows)} pairs, {dropped} too long")

    @staticmethod
    def text(prompt, answer):
        return f"[INST] {prompt.strip()} [/INST] {answer.strip()}"

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class PairCollator:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        seqs = [c for c, _ in rows] + [d for _, d in rows]
        width = max(map(len, seqs))
        ids = torch.full((len(seqs), width), self.pad_id)
        mask = torch.zeros((len(seqs), width), dtype=torch.long)
        for i, s in enumerate(seqs):
            ids[i, :len(s)] = torch.tensor(s)
            mask[i, :len(s)] = 1
        return {"input_ids": ids, "attention_mask": mask}
