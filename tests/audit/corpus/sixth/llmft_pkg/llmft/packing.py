import torch

from .prompting import IGNORE


def pack(examples, block_size):
    """Greedy packing inside a map batch; `doc` numbers the documents of a row from 1."""
    out = {"input_ids": [], "labels": [], "doc": []}
    ids, labels, doc, k = [], [], [], 0

    def flush():
        if ids:
            out["input_ids"].append(ids)
            out["labels"].append(labels)
            out["doc"].append(doc)

    for i, l in zip(examples["input_ids"], examples["labels"]):
        i, l = i[:block_size], [IGNORE] + l[1:block_size]
        if len(ids) + len(i) > block_size:
            flush()
            ids, labels, doc, k = [], [], [], 0
        k += 1
        ids, labels, doc = ids + i, labels + l, doc + [k] * len(i)
    flush()
    return out


class PackedCollator:
    """Pads to the longest row and builds the block-diagonal causal mask."""

    def __init__(self, pad_id, dtype=torch.bfloat16):
        self.pad_id = pad_id
        self.dtype = dtype

    def __call__(self, rows):
        n = max(len(r["input_ids"]) for r in rows)
        pad = lambda xs, v: torch.tensor([list(x) + [v] * (n - len(x)) for x in xs])
        ids = pad([r["input_ids"] for r in rows], self.pad_id)
        labels = pad([r["labels"] for r in rows], IGNORE)
        doc = pad([r["doc"] for r in rows], 0)

        same = doc[:, :, None] == doc[:, None, :]
        causal = torch.ones(n, n, dtype=torch.bool).tril()
        allowed = (same & causal)[:, None]
        mask = torch.zeros(allowed.shape, dtype=self.dtype).masked_fill(~allowed, torch.finfo(self.dtype).min)

        new = torch.ones_like(doc, dtype=torch.bool)
        new[:, 1:] = doc[:, 1:] != doc[:, :-1]
        idx = torch.arange(n).expand_as(doc)
        start = torch.where(new, idx, torch.zeros_like(idx)).cummax(1).values
        return {"input_ids": ids, "labels": labels, "attention_mask": mask, "position_ids": idx - start}
