#!/usr/bin/env python
# Small decoder trained from scratch on out-of-copyright Spanish verse.
import argparse
import math
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from model import TinyVerse

p = argparse.ArgumentParser()
p.add_argument("--tokens", default="data/verse_u16.npy", help="uint16 ids from prepare.py, 38M tokens")
p.add_argument("--ctx", type=int, default=512)
p.add_argument("--batch", type=int, default=64)
p.add_argument("--steps", type=int, default=60_000)
p.add_argument("--lr", type=float, default=6e-4)
p.add_argument("--warmup", type=int, default=1000)
p.add_argument("--save-every", type=int, default=5000)
p.add_argument("--out", default="ckpt")
p.add_argument("--seed", type=int, default=5)
args = p.parse_args()

torch.manual_seed(args.seed)
np.random.seed(args.seed)
torch.set_float32_matmul_precision("high")
device = "cuda"

ids = torch.from_numpy(np.load(args.tokens).astype(np.int64))
n = (len(ids) - 1) // args.ctx
x = ids[: n * args.ctx].view(n, args.ctx)
y = ids[1 : n * args.ctx + 1].view(n, args.ctx)
hold = n // 100
train_ds = TensorDataset(x[hold:], y[hold:])
val_x, val_y = x[:hold], y[:hold]
loader = DataLoader(train_ds, batch_size=args.batch, shuffle=True, drop_last=True,
                    num_workers=16, pin_memory=True)

model = TinyVerse(ctx=args.ctx).to(device)
decay = [w for w in model.parameters() if w.dim() >= 2]
rest = [w for w in model.parameters() if w.dim() < 2]
opt = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
    lr=args.lr, betas=(0.9, 0.95), foreach=False,
)


def lr_at(s):
    if s < args.warmup:
        return args.lr * (s + 1) / args.warmup
    r = (s - args.warmup) / max(1, args.steps - args.warmup)
    return 0.1 * args.lr + 0.45 * args.lr * (1 + math.cos(math.pi * r))


@torch.no_grad()
def validate():
    model.eval()
    total = torch.zeros((), device=device)
    batches = list(zip(val_x.split(args.batch), val_y.split(args.batch)))
    for a, b in batches:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            total += model(a.to(device), b.to(device))[1]
    model.train()
    return (total / len(batches)).item()


step, running = 0, 0.0
while step < args.steps:
    for a, b in loader:
        t0 = time.perf_counter()
        for g in opt.param_groups:
            g["lr"] = lr_at(step)
        a, b = a.to(device, non_blocking=True), b.to(device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            _, loss = model(a, b)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        running = 0.98 * running + 0.02 * loss.item()
        step += 1
        if step % 100 == 0:
            dt = time.perf_counter() - t0
            print(f"{step} loss {running:.4f} step {dt*1e3:.1f} ms")
        if step % args.save_every == 0:
            print(f"{step} val {validate():.4f}")
            torch.save(model.state_dict(), f"{args.out}/step{step:06d}.pt")
        if step >= args.steps:
            break
