import random

import torch


class TokenBudget:
    """Batches of similar length, at most `budget` padded tokens; the same number for each rank."""

    def __init__(self, lengths, budget, rank, world, seed):
        self.lengths, self.budget, self.rank, self.world, self.seed = lengths, budget, rank, world, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def all(self):
        rng = random.Random(self.seed + self.epoch)
        order = sorted(range(len(self.lengths)), key=lambda i: self.lengths[i] + rng.uniform(0, 32))
        batches, now, width = [], [], 0
        for i in order:
            width = max(width, self.lengths[i])
            if now and width * (len(now) + 1) > self.budget:
                batches.append(now)
                now, width = [], self.lengths[i]
            now.append(i)
        batches.append(now)
        rng.shuffle(batches)
        return batches[: len(batches) // self.world * self.world]

    def __iter__(self):
        return iter(self.all()[self.rank :: self.world])

    def __len__(self):
        return len(self.all()) // self.world


def collate(rows, pad):
    pad_to = torch.nn.utils.rnn.pad_sequence
    return {
        "input_ids": pad_to([r[0] for r in rows], batch_first=True, padding_value=pad),
        "attention_mask": pad_to([torch.ones_like(r[0]) for r in rows], batch_first=True),
        "labels": pad_to([r[1] for r in rows], batch_first=True, padding_value=-100),
    }
