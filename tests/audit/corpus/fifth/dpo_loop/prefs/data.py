import json

import torch
from torch.utils.data import Dataset


class Pairs(Dataset):
    def __init__(self, path, tok, max_len=1536):
        self.rows = []
        for line in open(path, encoding="utf-8"):
            r = json.loads(line)
            p = tok.apply_chat_template(
                [{"role": "user", "content": r["prompt"]}], add_generation_prompt=True, return_dict=False
            )
            out = {}
            for side in ("chosen", "rejected"):
                a = tok(r[side], add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
                out[side] = ((p + a)[:max_len], ([-100] * len(p) + a)[:max_len])
            self.rows.append(out)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def make_collate(pad_id):
    def collate(batch):
        # chosen first, rejected second: the loss splits in the middle
        seqs = [b["chosen"] for b in batch] + [b["rejected"] for b in batch]
        n = max(len(i) for i, _ in seqs)
        ids = torch.full((len(seqs), n), pad_id)
        att = torch.zeros((len(seqs), n), dtype=torch.long)
        lab = torch.full((len(seqs), n), -100)
        for k, (i, l) in enumerate(seqs):
            ids[k, : len(i)] = torch.tensor(i)
            att[k, : len(i)] = 1
            lab[k, : len(l)] = torch.tensor(l)
        return {"input_ids": ids, "attention_mask": att, "labels": lab}

    return collate
