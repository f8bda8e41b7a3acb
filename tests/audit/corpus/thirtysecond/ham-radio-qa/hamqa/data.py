"""Question pools (NCVEC + my own notes) -> token lists."""
import csv
import pathlib
import random

import torch


def read_pool(path):
    with open(path, newline="", encoding="utf-8") as fh:
        for row in csv.DictReader(fh):
            q, a = row["question"].strip(), row["answer"].strip()
            if q and a:
                yield row["id"], q, a


class PoolSet(torch.utils.data.Dataset):
    """~6k short items. Everything is tokenised here, once, and stays in RAM."""

    def __init__(self, items, tok, max_len):
        self.rows = []
        for _id, q, a in items:
            ids = tok(f"Q: {q}\nA: {a}{tok.eos_token}", truncation=True, max_length=max_len)["input_ids"]
            self.rows.append(ids)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Collate:
    def __init__(self, tok):
        self.pad_id = tok.pad_token_id

    def __call__(self, batch):
        width = max(len(r) for r in batch)
        ids = torch.full((len(batch), width), self.pad_id, dtype=torch.long)
        att = torch.zeros((len(batch), width), dtype=torch.long)
        for i, r in enumerate(batch):
            ids[i, : len(r)] = torch.tensor(r)
            att[i, : len(r)] = 1
        labels = ids.clone()
        labels[ids == self.pad_id] = -100
        return {"input_ids": ids, "attention_mask": att, "labels": labels}


def split(root, dev_every=15, seed=73):
    items = []
    for p in sorted(pathlib.Path(root).glob("*.csv")):
        items += list(read_pool(p))
    # the same question id turns up in several years' pools
    uniq = {}
    for _id, q, a in items:
        uniq[q.lower()] = (_id, q, a)
    items = sorted(uniq.values())
    random.Random(seed).shuffle(items)
    dev = items[::dev_every]
    train = [x for i, x in enumerate(items) if i % dev_every]
    return train, dev
