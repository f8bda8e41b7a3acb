"""Pretraining loop. One GPU (A100 80GB): python loop.py settings.toml

The deep variant fits a 24 GB card: python loop.py settings_deep.toml"""
import math
import random
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import torch

from net import LM

with open(sys.argv[1], "rb") as f:
    conf = tomllib.load(f)
D, T = conf["data"], conf["train"]
folder = Path(T["folder"])
folder.mkdir(parents=True, exist_ok=True)

random.seed(T["seed"])
np.random.seed(T["seed"])
torch.manual_seed(T["seed"])
torch.set_float32_matmul_precision("high")
dev = torch.device("cuda")


class Windows:
    """Random windows out of a memory-mapped token file; cheap enough to be drawn in the main process."""

    def __init__(self, path, block, seed):
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
        self.block, self.rng = block, np.random.default_rng(seed)

    def draw(self, n):
        at = self.rng.integers(0, len(self.tokens) - self.block - 1, size=n)
        rows = np.stack([self.tokens[i : i + self.block + 1] for i in at]).astype(np.int64)
        rows = torch.from_numpy(rows).pin_memory().to(dev, non_blocking=True)
        return rows[:, :-1], rows[:, 1:]


net = LM(D["vocab"], D["block"], **conf["model"]).to(dev)
two_d = [p for p in net.parameters() if p.dim() > 1]
one_d = [p for p in net.parameters() if p.dim() <= 1]
opt = torch.optim.AdamW([{"params": two_d, "weight_decay": 0.1}, {"params": one_d, "weight_decay": 0.0}],
                        lr=T["lr"], betas=(0.9, 0.95), fused=True)
train = Windows(D["train"], D["block"], T["seed"])

update, best = 0, math.inf
state_file = folder / "state.pt"
if state_file.exists():
    s = torch.load(state_file, map_location="cpu", weights_only=True)
    net.load_state_dict(s["net"])
    opt.load_state_dict(s["opt"])
    update, best = s["update"], s["best"]
    # a fresh stream of windows, not the ones seen before the interruption
    train = Windows(D["train"], D["block"], T["seed"] + update)
fast = torch.compile(net)


def lr(u):
    if u < T["warmup"]:
        return T["lr"] * (u + 1) / T["warmup"]
    r = min(1.0, (u - T["warmup"]) / (T["updates"] - T["warmup"]))
    return T["floor"] + 0.5 * (T["lr"] - T["floor"]) * (1 + math.cos(math.pi * r))


@torch.no_grad()
def evaluate(batches=40):
    net.eval()
    valid = Windows(D["valid"], D["block"], 0)
    total = torch.zeros((), device=dev)
    for _ in range(batches):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            total += net(*valid.draw(T["batch"]))
    net.train()
    return (total / batches).item()


net.train()
per_update = T["batch"] * T["accumulate"] * D["block"]
clock, since = None, 0
while update < T["updates"]:
    for g in opt.param_groups:
        g["lr"] = lr(update)
    acc = torch.zeros((), device=dev)
    for _ in range(T["accumulate"]):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = fast(*train.draw(T["batch"])) / T["accumulate"]
        loss.backward()
        acc += loss.detach()
    torch.nn.utils.clip_grad_norm_(net.parameters(), T["clip"])
    opt.step()
    opt.zero_grad(set_to_none=True)
    update += 1
    since += 1
    if update % T["log_every"] == 0:
        value = acc.item()  # waits for the GPU, so the clock below is honest
        now = time.perf_counter()
        speed = f"{since * per_update / (now - clock):,.0f} tok/s" if clock else "(warming up)"
        print(f"{update:6d}  loss {value:.4f}  {speed}", flush=True)
        clock, since = now, 0
    if update % T["eval_every"] == 0:
        v = evaluate()
        print(f"{update:6d}  valid {v:.4f}", flush=True)
        if v < best:
            best = v
            torch.save(net.state_dict(), folder / "best.pt")
        torch.cuda.synchronize()
        clock, since = time.perf_counter(), 0
    if update % T["save_every"] == 0:
        tmp = folder / "state.tmp"
        torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "update": update, "best": best}, tmp)
        tmp.replace(state_file)
        clock, since = time.perf_counter(), 0
