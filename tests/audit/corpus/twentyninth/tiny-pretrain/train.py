import argparse
import math
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from model import TinyLM


class Windows(Dataset):
    def __init__(self, path, ctx):
        # the whole file (about 2 GB) is kept in RAM
        self.data = torch.from_numpy(np.fromfile(path, dtype=np.uint16).astype(np.int32))
        self.ctx = ctx

    def __len__(self):
        return (len(self.data) - 1) // self.ctx

    def __getitem__(self, i):
        s = i * self.ctx
        chunk = self.data[s : s + self.ctx + 1].long()
        return chunk[:-1], chunk[1:]


def lr_at(step, args):
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    t = (step - args.warmup) / max(1, args.steps - args.warmup)
    return 0.1 * args.lr + 0.45 * args.lr * (1 + math.cos(math.pi * t))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tokens", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--steps", type=int, default=20000)
    p.add_argument("--warmup", type=int, default=500)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--ctx", type=int, default=1024)
    p.add_argument("--lr", type=float, default=6e-4)
    p.add_argument("--seed", type=int, default=7)
    args = p.parse_args()

    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")

    ds = Windows(args.tokens, args.ctx)
    sampler = DistributedSampler(ds, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(ds, batch_size=args.batch, sampler=sampler, num_workers=16,
                        pin_memory=True, drop_last=True)

    model = TinyLM(ctx=args.ctx).cuda()
    model = DDP(model, device_ids=[local], find_unused_parameters=True)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95),
                            weight_decay=0.1, foreach=False)

    os.makedirs(args.out, exist_ok=True)
    ckpt = os.path.join(args.out, "last.pt")
    step = epoch = 0
    if os.path.exists(ckpt):
        state = torch.load(ckpt, map_location="cpu", weights_only=True)
        model.module.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        step, epoch = state["step"], state["epoch"]

    start_step = step
    t0 = time.time()
    running = 0.0
    while step < args.steps:
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            for g in opt.param_groups:
                g["lr"] = lr_at(step, args)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            running += loss.item()
            step += 1
            if rank == 0 and step % 100 == 0:
                print(f"step {step} loss {running / 100:.4f}", flush=True)
                running = 0.0
            if rank == 0 and step % 2000 == 0:
                torch.save({"model": model.module.state_dict(), "opt": opt.state_dict(),
                            "step": step, "epoch": epoch}, ckpt)
            if step >= args.steps:
                break
        epoch += 1

    if rank == 0:
        tokens = (step - start_step) * args.batch * args.ctx * world
        print(f"tok/s {tokens / (time.time() - t0):,.0f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
