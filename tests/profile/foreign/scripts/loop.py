"""Somebody's own loop in plain PyTorch: `loop.py JSON` with what is planted in it. It knows nothing of Dynotune.

Of the JSON: `steps`; `loader` (seconds that a batch takes to make); `reads` (the loss is read every step); `compiles`
(batches of a new length each time, or of so many `lengths`, through `torch.compile`); `cycle` ([every, seconds]: sleeps);
`fails` (raises behind it); `catches` (SystemExit, and goes on); `writes` (a file, at its end);
`optimizer` (keywords of AdamW).
"""

import json
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

asked = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
torch.manual_seed(0)


class Rows(Dataset):
    ids = torch.randint(0, 100, (20_000,))

    def __len__(self):
        return 1000

    def __getitem__(self, i):
        if "loader" in asked:  # a sleep of no length gives the processor away, for milliseconds on a busy host
            time.sleep(asked["loader"])
        length = 8 + i % asked.get("lengths", 1000) if asked.get("compiles") else 16
        return self.ids[: 16 * length].view(16, length)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 512)
        self.body = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
        self.head = nn.Linear(512, 100)

    def forward(self, ids):
        return self.head(self.body(self.embed(ids)))


def step(model, optimizer, ids):
    logits = model(ids)
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def main():
    model = Model()
    called = torch.compile(model, backend="eager", dynamic=False) if asked.get("compiles") else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **asked.get("optimizer", {"fused": True}))
    every, pause = asked.get("cycle", (0, 0))
    for i, ids in enumerate(DataLoader(Rows(), batch_size=None)):
        if i == asked.get("steps", 200):
            break
        try:
            loss = step(called, optimizer, ids)
        except SystemExit:
            if not asked.get("catches"):
                raise
        if asked.get("reads"):
            loss.item()  # THE READ
        if every and i % every == 0:
            time.sleep(pause)
        if i == asked.get("fails"):
            raise RuntimeError("the disk is full")
    print("trained")
    if "writes" in asked:
        Path(asked["writes"]).write_text("the end was reached")


main()
