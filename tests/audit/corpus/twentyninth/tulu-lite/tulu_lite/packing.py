import torch

IGNORE = -100


def pack(rows, max_len):
    """Greedy packing; documents are never split."""
    packed, ids, labels, sizes = [], [], [], []
    for row in rows:
        n = len(row["input_ids"])
        if ids and len(ids) + n > max_len:
            packed.append({"input_ids": ids, "labels": labels, "sizes": sizes})
            ids, labels, sizes = [], [], []
        ids = ids + row["input_ids"]
        labels = labels + [IGNORE] + row["labels"][1:]
        sizes = sizes + [n]
    if ids:
        packed.append({"input_ids": ids, "labels": labels, "sizes": sizes})
    return packed


class PackedCollator:
    def __init__(self, pad_id, max_len, dtype=torch.bfloat16):
        self.pad_id = pad_id
        self.max_len = max_len
        self.dtype = dtype

    def __call__(self, features):
        b, t = len(features), self.max_len
        ids = torch.full((b, t), self.pad_id)
        labels = torch.full((b, t), IGNORE)
        position_ids = torch.zeros((b, t), dtype=torch.long)
        allowed = torch.eye(t, dtype=torch.bool).repeat(b, 1, 1)
        for i, f in enumerate(features):
            n = len(f["input_ids"])
            ids[i, :n] = torch.tensor(f["input_ids"])
            labels[i, :n] = torch.tensor(f["labels"])
            start = 0
            for size in f["sizes"]:
                stop = start + size
                position_ids[i, start:stop] = torch.arange(size)
                allowed[i, start:stop, start:stop] = torch.ones(size, size).tril().bool()
                start = stop
        mask = torch.zeros((b, 1, t, t), dtype=self.dtype)
        mask.masked_fill_(~allowed.unsqueeze(1), torch.finfo(self.dtype).min)
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": position_ids,
            "labels": labels,
        }
