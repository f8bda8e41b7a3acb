"""Somebody's loop over padded batches: `padded.py JSON`. It knows nothing of Dynotune but how to report, if it is to.

Of the JSON: `steps`; `fill` (share of each row that is real); `width` (of the layer: how long a step takes); `reports`
("real", "padded"; without it nothing is reported).
"""

import json
import sys
import time

import torch
from torch import nn

asked = json.loads(sys.argv[1])
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(50, width), nn.Linear(width, width), nn.Linear(width, 50)

    def forward(self, input_ids, attention_mask):
        return self.head(self.body(self.embed(input_ids)))[attention_mask.bool()]


model = Model(asked.get("width", 64))
optimizer = torch.optim.AdamW(model.parameters())
began, tokens = time.perf_counter(), 0
for _ in range(asked.get("steps", 30)):
    mask = torch.zeros(4, 32, dtype=torch.int64)
    mask[:, : int(32 * asked.get("fill", 0.5))] = 1
    model(input_ids=torch.randint(0, 50, mask.shape), attention_mask=mask).logsumexp(-1).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    tokens += mask.numel() if asked.get("reports") == "padded" else int(mask.sum())
if "reports" in asked:
    seconds = time.perf_counter() - began
    print(json.dumps({"tokens": tokens, "seconds": seconds, "steps": asked.get("steps", 30)}))
