import torch


class Pad:
    """Right padding; labels are masked by position, never by token id (pad may equal eos)."""

    def __init__(self, pad_id, multiple=8):
        self.pad_id, self.multiple = pad_id, multiple

    def __call__(self, rows):
        n = max(len(r["input_ids"]) for r in rows)
        n = -(-n // self.multiple) * self.multiple
        out = {"input_ids": [], "attention_mask": [], "labels": []}
        for r in rows:
            k = n - len(r["input_ids"])
            out["input_ids"].append(r["input_ids"] + [self.pad_id] * k)
            out["attention_mask"].append([1] * (n - k) + [0] * k)
            out["labels"].append(r["labels"] + [-100] * k)
        return {k: torch.tensor(v) for k, v in out.items()}
