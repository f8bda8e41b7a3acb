import argparse
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from model import PebbleLM


class Windows(Dataset):
    def __init__(self, path, ctx):
        self.data = torch.from_numpy(np.load(path).astype(np.int64))
        self.ctx = ctx

    def __len__(self):
        return (len(self.data) - 1) // self.ctx

    def __getitem__(self, i):
        s = i * self.ctx
        chunk = self.data[s : s + self.ctx + 1]
        return chunk[:-1], chunk[1:]


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="tokens.npy")
    p.add_argument("--vocab", type=int, default=50304)
    p.add_argument("--ctx", type=int, default=1024)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--lr", type=float, default=6e-4)
    p.add_argument("--steps", type=int, default=20000)
    p.add_argument("--out", default="ckpt")
    return p.parse_args()


def main():
    a = get_args()
    os.makedirs(a.out, exist_ok=True)
    device = "cuda"
    torch.set_float32_matmul_precision("high")
    loader = DataLoader(Windows(a.data, a.ctx), batch_size=a.batch, shuffle=True, num_workers=0, drop_last=True)
    model = PebbleLM(a.vocab, ctx=a.ctx).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=0.1, betas=(0.9, 0.95))
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=a.lr, total_steps=a.steps, pct_start=0.02)

    model.train()
    step, start = 0, time.time()
    while step < a.steps:
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(x)
            loss = F.cross_entropy(logits.float().view(-1, a.vocab), y.reshape(-1))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            running = loss.item()
            if step % 50 == 0:
                tps = step * a.batch * a.ctx / (time.time() - start)
                print(f"step {step} loss {running:.4f} tok/s {tps:,.0f}", flush=True)
            if step % 2000 == 0:
                torch.save(model.state_dict(), os.path.join(a.out, f"step{step}.pt"))
            if step >= a.steps:
                break


if __name__ == "__main__":
    main()
