import random

import torch
from datasets import load_dataset


def load_rows(path, tokenizer, max_len):
    raw = load_dataset("json", data_files=path, split="train")

    def encode(batch):
        out = tokenizer(batch["text"], truncation=True, max_length=max_len - 1)["input_ids"]
        return {"input_ids": [ids + [tokenizer.eos_token_id] for ids in out]}

    return raw.map(encode, batched=True, num_proc=8, remove_columns=raw.column_names)


class LengthBatches:
    """Batches of like length; their order is shuffled anew in every epoch."""

    def __init__(self, lengths, size, seed):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[i : i + size] for i in range(0, len(order) - size + 1, size)]
        self.seed, self.epoch, self.skip = seed, 0, 0

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        batches = list(self.batches)
        random.Random(self.seed + self.epoch).shuffle(batches)
        return iter(batches[self.skip :])


def collate(rows, pad_id):
    width = max(len(r["input_ids"]) for r in rows)
    ids = torch.full((len(rows), width), pad_id)
    labels = torch.full((len(rows), width), -100)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, r in enumerate(rows):
        n = len(r["input_ids"])
        ids[i, :n] = torch.tensor(r["input_ids"])
        labels[i, :n] = ids[i, :n]
        mask[i, :n] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}
