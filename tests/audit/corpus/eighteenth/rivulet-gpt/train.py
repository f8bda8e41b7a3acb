import argparse
import math
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from model import ByteGPT


class Windows(Dataset):
    """The whole corpus lies in memory as one tensor; an item is a slice of it."""

    def __init__(self, data, block):
        self.data = data
        self.block = block

    def __len__(self):
        return (len(self.data) - 1) // self.block

    def __getitem__(self, i):
        s = i * self.block
        return self.data[s : s + self.block], self.data[s + 1 : s + 1 + self.block]


def loader(data, args, shuffle):
    return DataLoader(
        Windows(data, args.block),
        batch_size=args.batch,
        shuffle=shuffle,
        drop_last=True,
        num_workers=8,
        pin_memory=False,
    )


def lr_at(step, args, total):
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    p = (step - args.warmup) / max(1, total - args.warmup)
    return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, p))))


@torch.no_grad()
def validate(model, batches, device, limit=50):
    model.eval()
    total = torch.zeros((), device=device)
    n = 0
    for x, y in batches:
        x, y = x.to(device, non_blocking=True).long(), y.to(device, non_blocking=True).long()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            total += model(x, y)[1]
        n += 1
        if n == limit:
            break
    model.train()
    return (total / n).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--resume", action="store_true")
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--block", type=int, default=512)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=6e-4)
    p.add_argument("--warmup", type=int, default=400)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()

    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    os.makedirs(args.out, exist_ok=True)

    raw = torch.from_numpy(np.fromfile(args.data, dtype=np.uint8))
    cut = int(len(raw) * 0.98)
    train_loader = loader(raw[:cut], args, shuffle=True)
    val_loader = loader(raw[cut:], args, shuffle=False)
    total = args.epochs * len(train_loader)

    net = ByteGPT(block=args.block).to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    model = torch.compile(net)

    path = os.path.join(args.out, "state.pt")
    step, first_epoch = 0, 0
    if args.resume and os.path.exists(path):
        state = torch.load(path, map_location=device, weights_only=True)
        net.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])
        step, first_epoch = state["step"], state["epoch"]

    tokens = 0
    start = time.perf_counter()
    for epoch in range(first_epoch, args.epochs):
        for x, y in train_loader:
            for g in opt.param_groups:
                g["lr"] = lr_at(step, args, total)
            x, y = x.to(device, non_blocking=True).long(), y.to(device, non_blocking=True).long()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                _, loss = model(x, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            tokens += x.numel()
            step += 1
            if step % 100 == 0:
                print(f"step {step}/{total} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} val {validate(model, val_loader, device):.4f}")
        torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "step": step, "epoch": epoch + 1}, path)

    torch.cuda.synchronize()
    print(f"training throughput: {tokens / (time.perf_counter() - start):.0f} tokens/s")


if __name__ == "__main__":
    main()
