import math
import os
import time
from dataclasses import dataclass

import torch

from data import make_loader
from model import StoryGPT


@dataclass
class Config:
    train_bin: str = "data/train.bin"
    val_bin: str = "data/val.bin"
    out: str = "out"
    block: int = 512
    batch: int = 96
    lr: float = 6e-4
    min_lr: float = 6e-5
    warmup: int = 500
    epochs: int = 2
    clip: float = 1.0
    log_every: int = 50
    eval_every: int = 1000
    seed: int = 1234


def lr_at(step, total, c):
    if step < c.warmup:
        return c.lr * (step + 1) / c.warmup
    r = (step - c.warmup) / max(1, total - c.warmup)
    return c.min_lr + 0.5 * (c.lr - c.min_lr) * (1 + math.cos(math.pi * r))


@torch.no_grad()
def validate(model, loader, device, batches=100):
    model.eval()
    total = torch.zeros((), device=device)
    seen = 0
    for x, y in loader:
        if seen == batches:
            break
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            total += model(x, y)
        seen += 1
    model.train()
    return (total / max(1, seen)).item()


def main():
    c = Config()
    torch.manual_seed(c.seed)
    torch.set_float32_matmul_precision("high")
    os.makedirs(c.out, exist_ok=True)
    device = "cuda"

    train = make_loader(c.train_bin, c.block, c.batch, True)
    val = make_loader(c.val_bin, c.block, c.batch, False)

    net = StoryGPT().to(device)
    model = torch.compile(net)
    opt = torch.optim.AdamW(net.parameters(), lr=c.lr, betas=(0.9, 0.95), weight_decay=0.1)

    total = len(train) * c.epochs
    step = 0
    running = 0.0
    t0 = time.time()
    for epoch in range(c.epochs):
        for x, y in train:
            for g in opt.param_groups:
                g["lr"] = lr_at(step, total, c)
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), c.clip)
            opt.step()
            opt.zero_grad(set_to_none=True)
            running += loss.item()
            step += 1

            if step % c.log_every == 0:
                tps = step * c.batch * c.block / (time.time() - t0)
                print(f"epoch {epoch} step {step}/{total} loss {running / c.log_every:.4f} tok/s {tps:,.0f}")
                running = 0.0
            if step % c.eval_every == 0:
                print(f"step {step} val {validate(model, val, device):.4f}")
                torch.save(net.state_dict(), os.path.join(c.out, f"step{step}.pt"))

    torch.save(net.state_dict(), os.path.join(c.out, "final.pt"))


if __name__ == "__main__":
    main()
