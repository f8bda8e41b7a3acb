"""Somebody's loop for several ranks: `torchrun --nproc_per_node 2 ranks.py [slow]`; with `slow` the second one waits."""

import sys
import time

import torch
from torch import distributed, nn

distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
    if distributed.get_rank() == 1 and "slow" in sys.argv:
        time.sleep(0.05)
    loss = model(torch.randn(8, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
distributed.destroy_process_group()
