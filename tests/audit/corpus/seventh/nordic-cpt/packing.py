"""First-fit packing of tokenised documents into rows of a fixed length."""
import random

import torch
from torch.utils.data import Dataset


def first_fit(docs, width, open_rows=64):
    """docs: list of token lists, none longer than width. Yields lists of documents."""
    rows = []
    for d in docs:
        for r in rows:
            if r[0] + len(d) <= width:
                r[0] += len(d)
                r[1].append(d)
                break
        else:
            rows.append([len(d), [d]])
            if len(rows) > open_rows:
                yield rows.pop(0)[1]
    for _, r in rows:
        yield r


class PackedRows(Dataset):
    def __init__(self, tokenised, width, rank, world):
        docs = []
        for ids in tokenised:
            for i in range(0, len(ids), width):
                docs.append(ids[i:i + width])
        random.shuffle(docs)
        self.rows = list(first_fit(docs, width))
        self.rows = self.rows[: len(self.rows) // world * world][rank::world]
        self.width = width

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class PackCollator:
    def __init__(self, pad_id, width):
        self.pad_id, self.width = pad_id, width

    def __call__(self, rows):
        b, w = len(rows), self.width
        ids = torch.full((b, w), self.pad_id)
        labels = torch.full((b, w), -100)
        pos = torch.zeros((b, w), dtype=torch.long)
        seg = torch.full((b, w), -1)
        for r, docs in enumerate(rows):
            at = 0
            for k, d in enumerate(docs):
                n = len(d)
                ids[r, at:at + n] = torch.tensor(d)
                labels[r, at:at + n] = torch.tensor(d)
                labels[r, at] = -100                 # nothing predicts a document's first token
                pos[r, at:at + n] = torch.arange(n)
                seg[r, at:at + n] = k
                at += n
        same = seg[:, :, None] == seg[:, None, :]
        causal = torch.ones(w, w, dtype=torch.bool).tril()
        mask = (same & causal)[:, None]              # (b, 1, w, w), block-diagonal
        return {"input_ids": ids, "labels": labels, "position_ids": pos, "attention_mask": mask}
