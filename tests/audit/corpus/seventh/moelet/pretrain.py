"""Pretraining of a small dense-dispatch MoE.   srun python pretrain.py base.toml"""
import math
import os
import sys
import time
import tomllib

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from moelet.data import Shards
from moelet.dist import RANK, WORLD_SIZE, setup, teardown
from moelet.model import MoElet, Shape


def lr_at(step, c):
    if step < c["warmup"]:
        return c["lr"] * (step + 1) / c["warmup"]
    x = (step - c["warmup"]) / max(1, c["steps"] - c["warmup"])
    return c["lr"] * (0.1 + 0.45 * (1 + math.cos(math.pi * x)))


def main():
    with open(sys.argv[1], "rb") as fh:
        cfg = tomllib.load(fh)
    t = cfg["train"]
    device = setup()
    torch.manual_seed(t["seed"])
    torch.backends.cuda.matmul.allow_tf32 = True

    shape = Shape(**cfg["model"])
    data = Shards(t["data"], shape.block, t["batch"], t["seed"])
    model = MoElet(shape).to(device)
    if RANK == 0:
        print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters")

    # fused AdamW
    decay = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": t["weight_decay"]},
         {"params": rest, "weight_decay": 0.0}],
        lr=t["lr"], betas=(0.9, 0.95), eps=1e-8,
    )

    model = torch.compile(model)
    if WORLD_SIZE > 1:
        model = DDP(model, device_ids=[device.index], gradient_as_bucket_view=True)

    os.makedirs(t["out"], exist_ok=True)
    start = time.time()
    for step in range(t["steps"]):
        for g in optimizer.param_groups:
            g["lr"] = lr_at(step, t)
        x, y = data.next(device)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            ce, aux = model(x, y)
        (ce + t["aux"] * aux).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        if step % t["log_every"] == 0 and RANK == 0:
            loss = ce.item()                     # also waits for the step to end
            speed = (step + 1) * data.tokens_per_step() / (time.time() - start)
            print(f"{step:6d}  loss {loss:.4f}  lr {lr_at(step, t):.2e}  {speed / 1e3:.0f}k tok/s", flush=True)

    if RANK == 0:
        raw = getattr(model, "module", model)
        raw = getattr(raw, "_orig_mod", raw)
        torch.save({"model": raw.state_dict(), "shape": vars(shape)}, os.path.join(t["out"], "final.pt"))
    teardown()


if __name__ == "__main__":
    main()
